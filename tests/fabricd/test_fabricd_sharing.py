"""DCTCP beside TCP on one queue that marks at random: each has the window that its RFC gives it at the share of marks.

RFC 9332 (2.1) and De Schepper et al. (CoNEXT 2016) have some 2 / p packets for DCTCP and 1.22 / sqrt(p) for TCP. Both
RFCs let no window grow while a cut is being acknowledged, which takes a part from each: so they are played here,
acknowledgement by acknowledgement, with marks that are drawn; p is all that this has of fabricd.
"""

from __future__ import annotations

import random
from pathlib import Path
from statistics import fmean

import pytest

from hardware.config import Hardware
from testbed.experiment import loads
from testbed.plan.hardware import hardware_of
from tests.parts.fabricd_fixture import BareFabric
from tests.parts.traffic_fabric import port, star

OWN = Path(__file__).parents[2] / "experiments" / "own"
FILE = """
name: law
fabric:
  topology: {star: {hosts: %d}}
  cable: {rate: 100Gbps, delay: 5us}
  switch: {buffer: 32MB, lossless: [], pfc: false, ecn: {kmin: 0B, kmax: %dKB, pmax: 1}}
  nic: {ack_every: 1}
transport: {cc: dctcp, nics: {%d-%d: {cc: {file: reno-ecn.c}}}}
"""
SETTLED_NS, END_NS, PACKET = 2e6, 14e6, 4096 + 58 + 24


def dctcp(p: float, acks: int = 200_000, g: float = 1 / 16) -> float:
    """The mean window of RFC 8257, 3.3, in packets."""
    dice, window, alpha = random.Random(1), 10.0, p
    time = recover = seen = marked = 0.0
    round_end = window
    for acked in range(acks):
        time += 1 / window
        mark = dice.random() < p
        seen, marked = seen + 1, marked + mark
        if acked >= round_end:
            alpha, seen, marked, round_end = (1 - g) * alpha + g * marked / seen, 0, 0, acked + window
        if acked < recover:
            continue
        if mark:
            window, recover = max(window * (1 - alpha / 2), 1), acked + window
        else:
            window += 1 / window
    return acks / time


def tcp(p: float, acks: int = 200_000) -> float:
    """Likewise of RFC 3168, 6.1.2."""
    dice, window, time, recover = random.Random(1), 10.0, 0.0, 0.0
    for acked in range(acks):
        time += 1 / window
        if acked < recover:
            continue
        if dice.random() < p:
            window, recover = max(window / 2, 1), acked + window
        else:
            window += 1 / window
    return acks / time


def sent(f: BareFabric, time_ns: float) -> tuple[dict[int, int], int]:
    """Packets by rank until then, and marks at the queue that they share."""
    f.fabricd.request("run_until", time_ns=time_ns)
    f.events("held")
    qps = f.counters()["qps"]
    return {q["rank"]: q["tx_packets"] for q in qps if q["rank"]}, port(f, "sw0", 1)["ecn_marked"]


@pytest.mark.parametrize(("each", "kmax_kb"), [(1, 4000), (2, 16000), (4, 4000)])
def test_each_has_the_window_of_its_rfc(each: int, kmax_kb: int) -> None:
    hardware: Hardware = hardware_of(loads(FILE % (1 + 2 * each, kmax_kb, 1 + each, 2 * each), directory=OWN))
    with star(1 + 2 * each, hardware) as f:
        f.fabricd.request("run_until", time_ns=1.0)  # nothing runs before the next is asked for
        f.events("held")
        flows = [[rank, 0, 10**9, 0] for rank in range(1, 1 + 2 * each)]
        f.fabricd.request("inject", fault="t", primitive="traffic", flows=flows)
        (before, marks), (after, more) = sent(f, SETTLED_NS), sent(f, END_NS)
    packets = {rank: after[rank] - before[rank] for rank in after}
    p = (more - marks) / sum(packets.values())
    queue = p * kmax_kb * 1000  # marks rise evenly from 0
    trip_ns = 4 * 5000 + 2 * 500 + 1300 + (queue + 2 * PACKET) * 8 / 100  # cables, switch, PCIe, queue, on two cables
    windows = {rank: count / (END_NS - SETTLED_NS) * trip_ns for rank, count in packets.items()}
    ours, theirs = (fmean(windows[r] for r in ranks) for ranks in (range(1, 1 + each), range(1 + each, 1 + 2 * each)))
    assert ours == pytest.approx(dctcp(p), rel=0.1)
    assert theirs == pytest.approx(tcp(p), rel=0.1)
    assert dctcp(p) == pytest.approx(2**0.5 / p, rel=0.1)  # a mark in 1.4 windows; 2 / p if it grew all the time
    assert sum(packets.values()) * PACKET * 8 / (END_NS - SETTLED_NS) == pytest.approx(
        100, rel=0.01
    )  # the cable is full
