"""Parts of the vector that go their own ways at the same time, in rounds of their own (collectives/parts.py)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest
from math import prod

from workloads.collectives.grids import swing
from workloads.collectives.grids.hypercube import exchanged
from workloads.collectives.grids.parts import coordinates, in_parts, number
from workloads.collectives.grids.torus import turns
from workloads.collectives.schedule import Span
from workloads.times.case import Case, Round
from workloads.times.ways import Pair

Rounds = list[Round]


def _side_by_side(case: Case, parts: Sequence[Rounds]) -> float:
    """All parts' k-th rounds together.

    They take turns, so that one is reduced while another is on its way: a round takes as long as the slowest of a
    message and its reduction, the busiest cable or PCIe, and the host.
    """
    total = late = 0.0
    costs = case.costs
    for k, at_a_time in enumerate(zip_longest(*parts)):
        its = [one for one in at_a_time if one is not None]
        traffic: dict[Pair, float] = {}
        for one in its:
            wire = case.wire(one.nbytes, case.pieces(one.nbytes)[1])
            for pair in one.pairs:
                traffic[pair] = traffic.get(pair, 0.0) + wire
        heaviest, link = case.ways.busiest(traffic)
        largest = max(its, key=lambda one: one.nbytes)
        count, piece = case.pieces(largest.nbytes)
        way = max(
            (case.ways.path([pair]) for pair in dict.fromkeys(largest.pairs)), key=lambda p: case.message(piece, p)
        )
        message, reduced = case.message(piece, way), largest.reduce * costs.reduce_ns(piece)
        rest = (count - 1) * case.line(piece, way, windowed=case.chunk is not None, reduce=largest.reduce)
        host = sum(costs.post_ns + costs.wake_ns + one.reduce * costs.reduce_ns(one.nbytes) for one in its)
        fetched = sum(one.nbytes for one in its) * 8e9 / costs.pcie_rate_bps
        carried = max(link.time_ns(heaviest), 0.0 if way.scale_up else fetched)
        total += max(message + reduced + rest, carried, host)
        if k == 0:
            total += (len(its) - 1) * max(costs.post_ns + reduced, carried / len(its))
        late = max(0.0, case.message(piece, way, sent=True) - message - reduced)
    return total + late


def _bucket(case: Case, *, reduces: bool, gathers: bool) -> float:
    dims, cut = case.shape.dims, in_parts(case.shape.dims)
    parts = []
    for first, direction in cut:
        size, rounds = case.share(len(cut)), Rounds()
        for dim in turns(len(dims), first):
            size = case.share(dims[dim], size)
            pairs = [(i, _beside(i, dims, dim, direction)) for i in range(case.n)]
            rounds += [Round(size, pairs, True)] * (dims[dim] - 1)
        parts.append(rounds)
    return _side_by_side(case, [_halves(rounds, reduces, gathers) for rounds in parts])


def _beside(rank: int, dims: Sequence[int], dim: int, direction: int) -> int:
    at = list(coordinates(rank, dims))
    at[dim] = (at[dim] + direction) % dims[dim]
    return number(at, dims)


def _halves(rounds: Rounds, reduces: bool, gathers: bool) -> Rounds:
    return rounds * reduces + [one._replace(reduce=False) for one in reversed(rounds)] * gathers


def bucket_all_reduce(case: Case) -> float:
    return _bucket(case, reduces=True, gathers=True)


def bucket_reduce_scatter(case: Case) -> float:
    return _bucket(case, reduces=True, gathers=False)


def bucket_all_gather(case: Case) -> float:
    return _bucket(case, reduces=False, gathers=True)


def _swing(case: Case, *, reduces: bool, gathers: bool) -> float:
    """A message holds the blocks that its receiver has to hand on in later steps."""
    cut, parts = swing.copies(case.shape), []
    for copy in cut:
        block, rounds = case.share(case.n, case.share(len(cut))), Rounds()
        done = [0] * len(copy.dims)
        for dim, step in swing.steps_of(copy.dims, copy.first):
            pairs = [(i, copy.partner(i, dim, step)) for i in range(case.n)]
            has = [len(table[k][0]) for table, k in zip(copy.tables, done, strict=True)]
            before = copy.tables[dim][step + 1]
            has[dim] = max(len(before[b] - before[a]) for a, b in copy.edges(dim, step))
            rounds.append(Round(prod(has) * block, pairs, True))
            done[dim] = step + 1
        parts.append(_halves(rounds, reduces, gathers))
    return _side_by_side(case, parts)


def swing_all_reduce(case: Case) -> float:
    return _swing(case, reduces=True, gathers=True)


def swing_reduce_scatter(case: Case) -> float:
    return _swing(case, reduces=True, gathers=False)


def swing_all_gather(case: Case) -> float:
    return _swing(case, reduces=False, gathers=True)


def swing_latency_all_reduce(case: Case) -> float:
    """log2 n rounds of all of a part."""
    cut = swing.copies(case.shape)
    pieces = exchanged(case.shape, Span(0, case.share(len(cut)) // case.width))
    part = max(span.stop - span.start for span in pieces) * case.width
    return _side_by_side(
        case,
        [
            [
                Round(part, [(i, copy.partner(i, dim, step)) for i in range(case.n)], True)
                for dim, step in swing.steps_of(copy.dims, copy.first)
            ]
            * len(pieces)
            for copy in cut
        ],
    )
