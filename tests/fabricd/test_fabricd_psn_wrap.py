"""Packets are numbered with 24 bits: what is lost where the numbers begin anew is sent again as it is elsewhere."""

from __future__ import annotations

import os
from typing import Any

import pytest

from hardware.build import build
from hardware.config import Hardware
from tests.parts.fabricd_fixture import bare_fabric
from tests.parts.traffic_fabric import drops, nic, switch
from workloads.verbs import wire

MTU = 256
WRITE = 1 << 15
NUMBERS = 1 << 24


def lossy_write(recovery: str, before: int) -> dict[str, Any]:
    """What a write of WRITE packets over a lossy cable has taken, when so many others had gone over a good one."""

    def change(config: dict[str, Any]) -> None:
        for each in config["nics"]:
            each.update(mtu=MTU, retry=100)

    h = Hardware(
        switch_buffer_bytes=10**9,
        switch=switch(headroom=0, lossless=[], alpha=64),
        nic={**nic(), "recovery": recovery, "reorder_packets": 1024},
        timeout_ns=20_000,
    )
    with bare_fabric("star", {"hosts": 2}, h, change=change, binary=build(), sample=10**9) as f:
        pair = f.pair(1, 0, WRITE * MTU)
        pair.memory_a[:] = os.urandom(WRITE * MTU)
        pair.park()
        writes = [before % WRITE] * (before % WRITE > 0) + [WRITE] * (before // WRITE)
        for packets in writes:
            pair.a.wait(1, wire.FOREVER, pair.write(packets * MTU))
        assert f.nic(1)["tx_vport_rdma_unicast_packets"] == before
        pair.memory_b[:] = bytes(WRITE * MTU)
        for port in ("h1:1", "h0:1"):
            drop = {"effect": "drop", "ports": [port], "select": {"share": 0.01}}
            f.fabricd.request("inject", fault=port, primitive="frames", **drop)
        began_ps = pair.a.time_ps
        (done,) = pair.a.wait(1, wire.FOREVER, pair.write(WRITE * MTU))
        assert done.status == 0
        assert pair.memory_b[:] == pair.memory_a[:]
        pair.done()
        sender = {key: f.nic(1)[key] for key in ("retransmitted", "packet_seq_err", "local_ack_timeout_err")}
        return {"ps": done.time_ps - began_ps, **sender, **drops(f)}


@pytest.mark.parametrize("recovery", ["go_back_n", "selective_repeat"])
def test_loss_where_the_numbers_begin_anew_costs_to_the_picosecond_what_it_costs_elsewhere(recovery: str) -> None:
    across = lossy_write(recovery, NUMBERS - WRITE // 2)
    elsewhere = lossy_write(recovery, WRITE // 2)
    assert across["fault"] > 300
    assert across == elsewhere
