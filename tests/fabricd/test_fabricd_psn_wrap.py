"""Packets are numbered with 24 bits: what is lost where the numbers begin anew is sent again as it is elsewhere."""

from __future__ import annotations

import os
from typing import Any

import pytest

from hardware.config import Hardware
from tests.parts.fabricd_fixture import bare_fabric, plain
from tests.parts.traffic_fabric import drops, nic, switch
from workloads.verbs import wire

MTU = 256
WRITE = 1 << 14
NUMBERS = 1 << 24
IN_ANY = {"ordering": "any", "sack_bits": 64, "sack_every": 16, "loss_after_ns": 4000}


def lossy_write(recovery: str, more: dict[str, Any], first: int) -> dict[str, Any]:
    """What a write of WRITE packets from that number on has taken over a lossy cable, on which some come late."""

    def change(config: dict[str, Any]) -> None:
        for each in config["nics"]:
            each.update(mtu=MTU, retry=100, first_psn=first)

    h = Hardware(
        switch_buffer_bytes=10**9,
        switch=switch(headroom=0, lossless=[], alpha=64),
        nic={**nic(), "recovery": recovery, "reorder_packets": 1024, **more},
        timeout_ns=20_000,
    )
    with bare_fabric("star", {"hosts": 2}, h, change=change, binary=plain(), sample=10**9) as f:
        pair = f.pair(1, 0, WRITE * MTU)
        pair.memory_a[:] = os.urandom(WRITE * MTU)
        pair.park()
        for port in ("h1:1", "h0:1"):
            drop = {"effect": "drop", "ports": [port], "select": {"share": 0.01}}
            f.fabricd.request("inject", fault=port, primitive="frames", **drop)
        if more:
            late = {"effect": "delay", "ports": ["h1:1"], "select": {"share": 0.5}, "reorder": True}
            f.fabricd.request("inject", fault="late", primitive="frames", delay_ns=0, jitter_ns=500, **late)
        began_ps = pair.a.time_ps
        (done,) = pair.a.wait(1, wire.FOREVER, pair.write(WRITE * MTU))
        assert done.status == 0
        assert pair.memory_b[:] == pair.memory_a[:]
        pair.done()
        return {"ps": done.time_ps - began_ps, "nics": f.counters()["nics"], **drops(f)}


@pytest.mark.parametrize(
    ("recovery", "more"), [("go_back_n", {}), ("selective_repeat", {}), ("selective_repeat", IN_ANY)]
)
def test_loss_where_the_numbers_begin_anew_costs_to_the_picosecond_what_it_costs_elsewhere(
    recovery: str, more: dict[str, Any]
) -> None:
    across = lossy_write(recovery, more, NUMBERS - WRITE // 2)
    elsewhere = lossy_write(recovery, more, WRITE // 2 + 3)
    assert across["fault"] > 150
    assert across == elsewhere
