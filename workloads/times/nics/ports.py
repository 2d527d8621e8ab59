"""Several rings at once, whose flows share the ports of NICs as ECMP's hash has it (workloads/collectives/ring.py)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence

from workloads.collectives.ring import RINGS
from workloads.times.case import Case
from workloads.times.messages import Link, line_ns, memories_of
from workloads.times.ways import slowest


def _rings(case: Case, reduces: Sequence[bool]) -> float:
    """As fast as the cable that most of them take; each hop has all rings' pieces at once."""
    count, piece = case.pieces(case.share(RINGS, case.share(case.n)))
    taken = Counter[tuple[Hashable, Link]]()
    routes = [case.ways.route(pair, ring) for pair in case.shift(1) for ring in range(RINGS)]
    for route in routes:
        taken.update(zip(route.keys, route.links, strict=True))
    busiest = max(load * link.time_ns(case.wire(piece, piece)) for (_, link), load in taken.items())
    costs, path = case.costs, slowest([route.path for route in routes])
    memory = RINGS * max(piece * 8e9 / its.rate_bps for its in memories_of(path, costs))
    message, reduced = case.message(piece, path), costs.reduce_ns(piece)
    total = 0.0
    for reduce in reduces:
        host = RINGS * (costs.post_ns + costs.wake_ns + (0 if costs.by_channel else reduce * reduced))
        once = message - line_ns(piece, path, costs) + reduce * reduced
        total += max(count * max(busiest, memory, host), once)
    return total + once


def all_reduce(case: Case) -> float:
    return _rings(case, [True] * (case.n - 1) + [False] * (case.n - 1))


def reduce_scatter(case: Case) -> float:
    return _rings(case, [True] * (case.n - 1))


def all_gather(case: Case) -> float:
    return _rings(case, [False] * (case.n - 1))
