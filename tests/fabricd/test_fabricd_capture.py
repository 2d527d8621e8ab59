"""Captures: what other tools read in them, and when it was."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from hardware.client import FabricdError
from hardware.config import Hardware
from tests.parts.dissected import dissect, frames_of
from tests.parts.fabricd_fixture import bare_fabric, post_recv
from tests.parts.timing_model import RETH, Model, ps_on, timed_write
from workloads.verbs import wire


def test_tshark_reads_roce_with_emulated_times(tmp_path: Path) -> None:
    h = Hardware()
    model = Model(h, 1)
    files = {port: tmp_path / f"{port.replace(':', '-')}.pcapng" for port in ("h0:1", "sw0:1", "sw0:2", "h1:1")}
    with bare_fabric("star", {"hosts": 2}, h) as f:
        for port, path in files.items():
            f.fabricd.request("capture", port=port, path=str(path))
        pair = f.pair(0, 1, 16384)
        start = pair.a.time_ps
        took, _ = timed_write(pair, 10_000)
        assert took == model.long_sent(10_000)
        pair.done()
        for path in files.values():
            f.fabricd.request("capture_stop", path=str(path))
    fields = ("frame.time_epoch", "frame.interface_name", "frame.packet_flags_direction", "frame.len",
              "infiniband.bth.opcode", "infiniband.bth.psn", "infiniband.reth.dmalen", "frame.protocols")  # fmt: skip
    at = {port: dissect(path, *fields) for port, path in files.items()}
    for port, frames in at.items():
        assert all(fr["frame.protocols"].startswith("eth:ethertype:ip:udp:infiniband") for fr in frames)
        assert {fr["frame.interface_name"] for fr in frames} == {port}
        data = [fr for fr in frames if int(fr["infiniband.bth.opcode"]) != 17]
        # write first, middle, last; numbered; the length in the first one only
        assert [(int(fr["infiniband.bth.opcode"]), int(fr["infiniband.bth.psn"])) for fr in data] == [
            (6, 0),
            (7, 1),
            (8, 2),
        ]
        assert [fr.get("infiniband.reth.dmalen") for fr in data] == ["10000", None, None]
        # out (2) at a NIC's port towards the switch, in (1) at the switch's port there
        direction = {"h0:1": 2, "sw0:1": 1, "sw0:2": 2, "h1:1": 1}[port]
        assert {int(fr["frame.packet_flags_direction"], 0) for fr in data} == {direction}
        acks = [fr for fr in frames if int(fr["infiniband.bth.opcode"]) == 17]
        assert {int(fr["frame.packet_flags_direction"], 0) for fr in acks} == {3 - direction}
    # frames carry the time of their first bit when they leave and of their last when they come in
    leaves = model.doorbell + model.pcie_ps(4096) + model.pcie
    ser = ps_on(h.cable_rate_bps, 4096 + 58 + RETH + 24)
    expected = {"h0:1": leaves, "sw0:1": leaves + ser + 500_000, "sw0:2": leaves + ser + 1_000_000,
                "h1:1": leaves + 2 * ser + 1_500_000}  # fmt: skip
    for port, ps in expected.items():
        assert round(float(at[port][0]["frame.time_epoch"]) * 1e9) == (start + ps + 500) // 1000


def test_icrcs_agree_with_scapys(tmp_path: Path) -> None:
    from scapy.contrib.roce import BTH
    from scapy.layers.l2 import Ether

    path = tmp_path / "h1.pcapng"
    with bare_fabric("star", {"hosts": 2}) as f:
        pair = f.pair(0, 1, 16384)
        pair.memory_a[:] = os.urandom(16384)
        f.fabricd.request("capture", port="h1:1", path=str(path))
        f.fabricd.request("capture", port="h0:1", path=str(path))  # both into one file
        receives = [post_recv(pair.qp_b, pair.key_b, 5000) for _ in range(12)]
        pair.b.begin_wait(1000, 10**12, *receives)
        pair.parked = True
        for opcode in (wire.WRITE, wire.WRITE_IMM, wire.SEND):
            for size in (0, 1, 2, 3, 4096, 4999):
                assert timed_write(pair, size, opcode=opcode, imm=0x01020304)[1].status == 0
        pair.done()
        f.fabricd.request("capture_stop", path=str(path))
    frames = frames_of(path)
    assert len(frames) == 2 * (18 + 3 + 18)  # three of the messages take two packets, and each is acknowledged
    for raw in frames:
        packet = Ether(raw)
        assert BTH in packet
        packet[BTH].icrc = None
        rebuilt = bytes(packet)
        assert rebuilt[-4:] == raw[-4:]
    names = {fr["frame.interface_name"] for fr in dissect(path, "frame.interface_name")}
    assert names == {"h0:1", "h1:1"}


def test_what_cannot_be_captured(tmp_path: Path) -> None:
    with bare_fabric("star", {"hosts": 2}) as f:

        def refusal(**arguments: Any) -> str:
            try:
                f.fabricd.request(**arguments)
            except FabricdError as error:
                return str(error)
            return ""

        path = str(tmp_path / "x.pcapng")
        for port in ("nowhere:1", "h0:0", "h0:3", "sw0:99", "h0", "", "sw0:", "sw0:x"):
            assert "no such port" in refusal(op="capture", port=port, path=path)
        assert "No such file" in refusal(op="capture", port="h0:1", path=str(tmp_path / "no" / "x"))
        assert "no capture" in refusal(op="capture_stop", path=path)
        assert refusal(op="capture", port="h0:1", path=path) == ""
        assert "already" in refusal(op="capture", port="h0:1", path=path)
        f.start()
