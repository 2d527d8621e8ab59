"""Each formula of a collective against the same collective followed message by message: two ways to one time.

All ranks reach each other over equal paths, as in a star. A formula may be off by what it leaves out: rounds that a
rank without a partner begins early, pieces that meet each other at a cable.
"""

from __future__ import annotations

from math import inf

import pytest

from workloads.base.entry import Algorithm, named
from workloads.collectives.schedule import schedule_of
from workloads.registry import ALGORITHMS
from workloads.times.case import Case
from workloads.times.messages import Costs, Path
from workloads.times.replay import replayed
from workloads.times.ways import Uniform

WAYS = Uniform(Path.uniform(1, rate_bps=400e9, delay_ns=500.0, latency_ns=500.0))
COSTS = Costs(reduce_bps=800e9)
SIZES = (4096, 1 << 18, 1 << 21)
RANKS = (2, 3, 4, 7, 8, 13)
GRIDS = ((2, 2), (2, 3), (4, 2))
LIMIT = 0.013
ROUGH = {"bidirectional_ring": 0.11, "multi_ring": 0.05, "double_binary_tree": 0.24}
FOLDED = {"halving_doubling": 0.31, "halving": 0.06, "recursive_doubling": 0.07}
"""Of a number of ranks that is no power of two."""
ENTRIES = [entry for entry in ALGORITHMS.values() if entry.time and entry.schedule and entry.layout != "rails"]


def ratio(entry: Algorithm, ranks: int, size: int, **options: object) -> float:
    case = Case.of(entry, ranks, size, 4, options, 1, COSTS, WAYS)
    followed = replayed(case, schedule_of(entry), inf)
    assert followed
    formula: float = named(entry.time)(case)
    return formula / followed


@pytest.mark.parametrize("entry", ENTRIES, ids=str)
def test_a_formula_says_what_its_messages_take(entry: Algorithm) -> None:
    off = {}
    if entry.shaped:
        for dims in GRIDS:
            off |= {(dims, size): ratio(entry, dims[0] * dims[1], size, dims=dims) - 1 for size in SIZES}
    for ranks in RANKS if not off else ():
        if entry.min_ranks <= ranks <= (entry.max_ranks or ranks):
            off |= {(ranks, size): ratio(entry, ranks, size) - 1 for size in SIZES}
    assert off

    limits = {at: ROUGH.get(entry.name, _limit(entry, at[0])) for at in off}
    assert not {at: by for at, by in off.items() if abs(by) > limits[at]}


def _limit(entry: Algorithm, ranks: int | tuple[int, ...]) -> float:
    folded = isinstance(ranks, int) and ranks & (ranks - 1)
    return FOLDED.get(entry.name, LIMIT) if folded else LIMIT
