"""Open vSwitch decides where frames go: no rule, no traffic; two outputs, two copies; what it adds is flagged."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from hardware.config import Hardware
from hardware.devices import Devices
from tests.parts import fabricd_fixture
from tests.parts.fabricd_fixture import BareFabric, bare_fabric, wait_until
from tests.parts.timing_model import RETH, Model, one, timed_write
from workloads.verbs import wire


@pytest.fixture(params=[1024, 0], ids=["fast", "slow"], autouse=True)
def _path(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the fast path and without."""
    monkeypatch.setattr(fabricd_fixture, "SAMPLE", request.param)


OVS_H = Path(__file__).parents[2] / "hardware/fabricd/switch/ovs.h"


def set_mac(rank: int, mac: str) -> Any:
    def change(config: dict[str, Any]) -> None:
        config["nics"][rank]["mac"] = mac

    return change


@pytest.mark.parametrize(("deleted", "port"), [("leaf0", "h0"), ("spine0", "leaf0"), ("leaf1", "spine0")])
def test_no_rule_no_traffic(deleted: str, port: str) -> None:
    h = Hardware(timeout_ns=50_000, retry=1)
    with bare_fabric("clos", {"leaves": 2, "spines": 1, "hosts_per_leaf": 1}, h) as f:
        pair = f.pair(0, 1)
        f.ofctl("del-flows", f.bridge(deleted), f"dl_dst={f.fabric.nics[1].mac}")
        took, record = timed_write(pair, 4096)
        assert record.status == 12
        model = Model(h, 3)
        assert took == model.doorbell + 2 * 50_000_000 + model.pcie
        drop = f.events("forwarding_drop")[0]
        assert (drop["switch"], drop["port"]) == (deleted, f.port_to(deleted, port))
        assert f"{f.fabric.nics[0].ip} > {f.fabric.nics[1].ip}" in drop["headers"]
        assert "RoCE RC WRITE_ONLY" in drop["headers"]
        hops = {"leaf0": 0, "spine0": 1, "leaf1": 2}[deleted]
        ser = (model.travel(4096, RETH) - model.passing) // 4
        arrived = model.doorbell + model.pcie_ps(4096) + model.pcie + (hops + 1) * (ser + 500_000) + hops * 500_000
        assert drop["time_ns"] * 1000 == arrived + 500_000  # said when it would have gone on
        counters = f.counters()
        assert counters["fidelity"]["forwarding_drops"] == 2
        assert {s["switch"]: s["forwarding_drops"] for s in counters["switches"]}[deleted] == 2
        assert [(d["node"], d["reason"], d["count"]) for d in counters["drops"]] == [(deleted, "forwarding", 2)]
        pair.done()


def test_all_that_is_pending_may_come_out_of_one_port() -> None:
    """The kernel drops what its queue for a TAP cannot hold, silently and depending on who is scheduled when."""
    pending_max = int(re.search(r"#define PENDING_MAX (\d+)", OVS_H.read_text())[1])  # type: ignore[index]
    with bare_fabric("star", {"hosts": 3}) as f:
        for port in (1, 2, 3):
            shown = f.switch.run("ip", "link", "show", Devices(f.fabric).tap(f.fabric.switches[0], port))
            assert int(re.search(r"qlen (\d+)", shown)[1]) >= pending_max  # type: ignore[index]


def test_the_rule_comes_back() -> None:
    with bare_fabric("star", {"hosts": 2}, Hardware(timeout_ns=10_000_000)) as f:
        pair = f.pair(0, 1)
        mac = f.fabric.nics[1].mac
        f.ofctl("del-flows", f.bridge("sw0"), f"dl_dst={mac}")
        f.fabricd.request("cable", cable="sw0-h0", up=True)  # something that the clock passes
        pair.park()
        pair.a.begin_wait(1, 5_000_000_000, pair.write(8))
        assert pair.a.end_wait() == []  # by 5 ms, nothing
        f.ofctl("add-flow", f.bridge("sw0"), f"dl_dst={mac},actions=output:{f.port_to('sw0', 'h1')}")
        assert one(pair.a.wait()).status == 0
        pair.done()


@pytest.mark.parametrize("how", ["outputs", "group"])
def test_copies_of_a_multicast_frame(how: str) -> None:
    """Two copies of every frame come out and are carried; fences tell when there will be no more."""
    multicast = "03:00:0a:00:00:02"
    with bare_fabric("star", {"hosts": 4}, change=set_mac(1, multicast)) as f:
        bridge, out = f.bridge("sw0"), [f.port_to("sw0", f"h{i}") for i in (1, 2)]
        actions = ",".join(f"output:{p}" for p in out)
        if how == "group":
            buckets = ",".join(f"bucket=output:{p}" for p in out)
            f.ofctl("add-group", bridge, f"group_id=1,type=all,{buckets}")
            actions = "group:1"
        f.ofctl("add-flow", bridge, f"dl_dst={multicast},actions={actions}")
        pair = f.pair(0, 1, 16384)
        took, record = timed_write(pair, 16384)
        assert record.status == 0
        assert took == Model(Hardware(), 1).long_sent(16384)
        counters = f.counters()
        ports = {p["peer"]: p for p in counters["ports"] if p["node"] == "sw0"}
        assert ports["h1:1"]["tx_frames"] == ports["h2:1"]["tx_frames"] == 4
        # nobody on h2 wants them
        assert [(d["node"], d["reason"], d["count"]) for d in counters["drops"]] == [("h2", "no_qp", 4)]
        assert counters["fidelity"]["fences"] >= 2
        assert counters["fidelity"]["flagged"] == 0
        pair.done()


def test_a_multicast_frame_without_a_rule_is_a_forwarding_drop() -> None:
    multicast = "03:00:0a:00:00:02"
    with bare_fabric("star", {"hosts": 2}, Hardware(timeout_ns=5000, retry=0), change=set_mac(1, multicast)) as f:
        f.ofctl("del-flows", f.bridge("sw0"), f"dl_dst={multicast}")
        pair = f.pair(0, 1)
        assert timed_write(pair, 8)[1].status == 12
        assert f.events("forwarding_drop")[0]["switch"] == "sw0"
        pair.done()


def test_a_second_copy_of_a_unicast_frame_is_flagged() -> None:
    with bare_fabric("star", {"hosts": 3}) as f:
        out = ",".join(f"output:{f.port_to('sw0', h)}" for h in ("h1", "h2"))
        f.ofctl("mod-flows", f.bridge("sw0"), f"dl_dst={f.fabric.nics[1].mac},actions={out}")
        pair = f.pair(0, 1)
        assert timed_write(pair, 8)[1].status == 0
        wait_until(lambda: bool(f.counters()["fidelity"]["flagged"]), "the late copy to be flagged")
        example = f.counters()["fidelity"]["flagged_examples"][0]
        assert example["what"] == "late copy"
        # either may be read first
        assert example["switch"] == "sw0"
        assert example["port"] in [f.port_to("sw0", h) for h in ("h1", "h2")]
        pair.done()


def test_a_packet_out_is_carried_and_flagged() -> None:
    with bare_fabric("star", {"hosts": 2}) as f:
        pair = f.pair(0, 1)
        port = f.port_to("sw0", "h1")
        frame = "ffffffffffff" + "020000000001" + "0806" + "00" * 46
        f.ofctl("packet-out", f.bridge("sw0"), f"in_port=controller,packet={frame},actions=output:{port}")
        wait_until(lambda: bool(f.counters()["fidelity"]["flagged"]), "the packet-out to be flagged")
        example = f.counters()["fidelity"]["flagged_examples"][0]
        assert example["what"] == "foreign frame"
        assert (example["switch"], example["port"]) == ("sw0", port)
        assert "ethertype 0x0806" in example["headers"]
        assert timed_write(pair, 8)[1].status == 0
        assert _frames_at(f, "h1") == 2
        pair.done()


def _frames_at(f: BareFabric, node: str) -> int:
    return sum(int(p["rx_frames"]) for p in f.counters()["ports"] if p["node"] == node)


def test_what_a_tap_does_not_take_is_no_loss_of_the_model() -> None:
    """The kernel refuses what is written to a TAP that is down."""
    with bare_fabric("star", {"hosts": 2}, Hardware(timeout_ns=5000, retry=1)) as f:
        pair, port = f.pair(0, 1), f.port_to("sw0", "h0")
        f.switch.run("ip", "link", "set", Devices(f.fabric).tap(f.fabric.switches[0], port), "down")
        assert timed_write(pair, 8)[1].status == 12
        fidelity = f.counters()["fidelity"]
        assert (fidelity["unmodelled_losses"], fidelity["flagged"], fidelity["forwarding_drops"]) == (2, 2, 2)
        for example in fidelity["flagged_examples"]:
            assert (example["what"], example["switch"], example["port"]) == ("Input/output error", "sw0", port)
            assert "WRITE_ONLY" in example["headers"]
        pair.done()


def test_a_rule_may_rewrite_headers() -> None:
    """ECN and DSCP may change on the way (the ICRC does not cover them); an address may not."""
    with bare_fabric("star", {"hosts": 2}, Hardware(timeout_ns=5000, retry=0)) as f:
        mac, port = f.fabric.nics[1].mac, f.port_to("sw0", "h1")
        match = f"ip,dl_dst={mac}"
        f.ofctl("add-flow", f.bridge("sw0"), f"priority=40000,{match},actions=set_field:3->ip_ecn,output:{port}")
        pair = f.pair(0, 1)
        assert timed_write(pair, 8)[1].status == 0
        f.ofctl("add-flow", f.bridge("sw0"), f"priority=50000,{match},actions=set_field:10.9.9.9->ip_src,output:{port}")
        assert timed_write(pair, 8)[1].status == 12
        assert f.nic(1)["rx_icrc_encapsulated"] == 1
        assert [d["reason"] for d in f.counters()["drops"]] == ["icrc"]
        pair.done()


def test_a_frame_goes_as_far_as_its_time_to_live() -> None:
    """A router that has taken one away forwards what has some left (RFC 1812, section 5.3.1)."""
    with bare_fabric("star", {"hosts": 2}, Hardware(timeout_ns=5000, retry=0)) as f:
        pair = f.pair(0, 1)
        for ttl, status in ((2, 0), (1, 12)):
            rule = f"ip,dl_dst={f.fabric.nics[1].mac},actions=mod_nw_ttl:{ttl},output:{f.port_to('sw0', 'h1')}"
            f.ofctl("add-flow", f.bridge("sw0"), f"priority=40000,{rule}")
            assert timed_write(pair, 8)[1].status == status
        assert [(d["node"], d["reason"], d["count"]) for d in f.counters()["drops"]] == [("sw0", "ttl", 1)]
        pair.done()


def test_frames_on_a_cut_cable_are_lost_even_though_open_vswitch_has_them() -> None:
    """Cut while the frame is on its cable: lost.  Cut once it has come in: through."""
    h = Hardware(timeout_ns=20_000, retry=0)
    model = Model(h, 1)
    leaves = model.doorbell + model.pcie_ps(64) + model.pcie
    ser = (model.travel(64, RETH) - model.passing) // 2
    arrives = leaves + ser + 500_000
    for cut, status, rule in ((arrives - 1, 12, True), (arrives + 1, 0, True), (arrives - 1, 12, False)):
        with bare_fabric("star", {"hosts": 2}, h) as f:
            pair = f.pair(0, 1)
            if not rule:  # what is lost before it has come in is lost once
                f.ofctl("del-flows", f.bridge("sw0"), f"dl_dst={f.fabric.nics[1].mac}")
            f.fabricd.request("cable", cable="sw0-h0", up=False, at_ns=cut / 1000)
            f.fabricd.request("cable", cable="sw0-h0", up=True, at_ns=(cut + 2) / 1000)
            assert timed_write(pair, 64)[1].status == status
            lost = [(d["node"], d["reason"], d["count"]) for d in f.counters()["drops"]]
            assert lost == ([("sw0", "cable", 1)] if status else [])
            pair.done()


def test_many_small_frames_wait_for_room_in_open_vswitch() -> None:
    """Far more frames under way to one port than its TAP may hold: nothing is lost on the way through."""
    with bare_fabric("star", {"hosts": 2}, Hardware(cable_delay_ns=20_000)) as f:
        pair = f.pair(0, 1)
        pair.park()
        posts = [pair.write(1, wr_id=i) for i in range(900)]
        assert {r.status for r in pair.a.wait(900, wire.FOREVER, *posts)} == {0}
        assert f.counters()["drops"] == []
        assert f.counters()["fidelity"]["unmodelled_losses"] == 0
        pair.done()
