"""Faults that strike packets which choose their path: how each shows, that others do not see it, and that it heals."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from testbed.base.errors import InputError
from testbed.experiment import loads
from testbed.experiment.basis import Basis
from testbed.faults import CannotInject, Injection
from testbed.plan.hardware import hardware_of
from tests.parts.fabricd_fixture import BareFabric, bare_fabric, plain
from tests.parts.traffic_fabric import send

MTU, ENTROPIES = 4096, 64
FILE = """
name: paths
fabric:
  topology: {clos: {leaves: 2, spines: 4, hosts_per_leaf: 2}}
  switch: {pfc: false, ecn: {classes: [3], kmin: 20KB, kmax: 60KB, pmax: 1}}
  nic: {pfc: false, ack_every: 4}
transport: {cc: nscc, recovery: selective_repeat, sack: {every: 4}, loss: {after: 20us}, multipath: %s}
"""
ROUND, REPS = f"{{policy: round, entropies: {ENTROPIES}}}", "{policy: reps}"


@contextmanager
def leaves(multipath: str) -> Iterator[BareFabric]:
    hardware = hardware_of(loads(FILE % multipath))
    with bare_fabric("clos", {"leaves": 2, "spines": 4, "hosts_per_leaf": 2}, hardware, binary=plain()) as f:
        for rank in (2, 3):
            chosen = "multipath(symmetric_l3l4+udp,0,modulo_n,4,0,NXM_NX_REG0[]),resubmit(,9)"
            f.ofctl(
                "add-flow", f.bridge("leaf0"), f"priority=50000,udp,nw_dst={f.fabric.nics[rank].ip},actions={chosen}"
            )
        f.ofctl(
            "add-flows", f.bridge("leaf0"), "-", flows=[f"table=9,reg0={k},actions=output:{3 + k}" for k in range(4)]
        )
        f.fabricd.request("start", ranks=[])
        yield f


def inject(f: BareFabric, **fault: Any) -> None:
    injection = Injection.of(fault)
    for request in injection.requests(injection.place(f.fabric), "f"):
        f.fabricd.request("inject", **request)


def lost(f: BareFabric, rank: int = 0) -> dict[tuple[int, int], tuple[int, int]]:
    """Of each queue pair and entropy what was sent, and what of it was lost."""
    page = f.fabricd.request("paths", rank=rank)["paths"]
    return {(row["qp"], row["entropy"]): (row["sent"], row["lost"]) for row in page}


def nic(f: BareFabric, rank: int) -> dict[str, Any]:
    return dict(f.counters()["nics"][rank])


def test_some_entropies_lead_nowhere_and_all_others_are_fine() -> None:
    with leaves(ROUND) as f:
        inject(f, fault="blackhole_entropy", on="switch:leaf0", of=8)
        send(f, [(0, 2, 8 * ENTROPIES * MTU, 0)])
        seen = lost(f)
        dead = {path for path, (sent, gone) in seen.items() if sent == gone}
        assert 2 <= len(dead) <= 16 and all(not gone for path, (_, gone) in seen.items() if path not in dead)
        assert {drop["reason"] for drop in f.counters()["drops"]} == {"fault"}
        f.fabricd.request("heal", fault="f")
        before = nic(f, 0)["retransmitted"]
        send(f, [(0, 2, 8 * ENTROPIES * MTU, 0)])
        assert nic(f, 0)["retransmitted"] == before > 0


def test_a_nic_that_takes_packets_in_order_makes_all_who_spray_to_it_send_again() -> None:
    """The other NIC of its leaf gets as much, and nothing shows there; nor where one path is kept."""
    with leaves(ROUND) as f:
        inject(f, fault="in_order_nic", on="nic:2")
        f.fabricd.request("cable", cable="leaf0-spine3", delay_ns=3000)  # so that packets overtake each other
        (good,) = send(f, [(0, 3, 100 * MTU, 0)])
        assert not nic(f, 0)["retransmitted"] and nic(f, 3)["out_of_sequence"]
        (bad,) = send(f, [(0, 2, 100 * MTU, 0)])
        assert nic(f, 0)["retransmitted"] > 10 and nic(f, 2)["out_of_sequence"] and bad > 2 * good
        f.fabricd.request("heal", fault="f")
        before = nic(f, 0)["retransmitted"]
        (healed,) = send(f, [(0, 2, 100 * MTU, 0)])
        assert nic(f, 0)["retransmitted"] == before and healed < bad
    with leaves("null") as f:
        inject(f, fault="in_order_nic", on="nic:2")
        send(f, [(0, 2, 100 * MTU, 0)])
        assert not nic(f, 0)["retransmitted"] and not nic(f, 2)["out_of_sequence"]


def test_marks_that_come_late_keep_reps_on_paths_that_are_full() -> None:
    """The ways up have 1.1 times the rate of both senders. By marks they are taken evenly, and else as first drawn."""
    flows = [(0, 2, 4_000_000, 0.0), (1, 3, 4_000_000, 0.0)]
    last, marks, fullest = [], [], []
    for late in (False, True):
        with leaves(REPS) as f:
            for spine in range(4):
                f.fabricd.request("cable", cable=f"leaf0-spine{spine}", rate_bps=220e9)
            if late:
                inject(f, fault="reps_late_marks", on="all")
            last.append(max(send(f, flows)))
            pages = [f.fabricd.request("paths", rank=rank)["paths"] for rank in (0, 1)]
            marks.append(sum(row["marked"] for page in pages for row in page))
            fullest.append(max(p["tx_frames"] for p in f.counters()["ports"] if p["node"] == "leaf0" and p["port"] > 2))
    assert marks[1] < marks[0] / 5 and fullest[1] > 1.1 * fullest[0] and last[1] > 1.1 * last[0]


@pytest.mark.parametrize(
    ("fault", "multipath", "said"),
    [
        (
            "{fault: blackhole_entropy, on: 'switch:leaf0'}",
            "null",
            "blackhole_entropy is for NICs whose packets choose",
        ),
        ("{fault: reps_late_marks, on: all}", "null", "reps_late_marks is for NICs whose packets choose their path"),
        ("{fault: reps_late_marks, on: all, kmin: 1MB}", REPS, "kmin is larger than kmax"),
    ],
)
def test_where_it_would_change_nothing_it_is_refused(fault: str, multipath: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        loads(f"{FILE % multipath}inject: [{fault}]\n")


def test_a_nic_that_takes_none_ahead_anyway_gets_no_worse() -> None:
    basis = Basis(loads("name: x\nfabric: {topology: {star: {hosts: 2}}}\n"))
    injection = Injection.of({"fault": "in_order_nic", "on": "nic:0"})
    with pytest.raises(CannotInject, match="no NIC takes packets ahead"):
        injection.requests(injection.place(basis.graph, built=basis.built), "f")
