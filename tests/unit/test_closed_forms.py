"""Each formula of a collective against the same collective followed message by message: two ways to one time.

All ranks reach each other over equal paths, as in a star. A formula may be off by what it leaves out: rounds that a
rank without a partner begins early, pieces that meet each other at a cable.
"""

from __future__ import annotations

from math import inf

import pytest

from testbed.experiment import loads
from testbed.experiment.steps.collective import CollectiveStep
from testbed.plan.choose import Chooser
from tests.parts.uniform_paths import Uniform, closed_form_ns
from workloads.base.entry import Algorithm, named
from workloads.collectives.schedule import schedule_of
from workloads.registry import ALGORITHMS
from workloads.times.case import Case
from workloads.times.expected import replayed
from workloads.times.messages import Costs, Path

WAYS = Uniform(Path.uniform(1, rate_bps=400e9, delay_ns=500.0, latency_ns=500.0))
COSTS = Costs(reduce_bps=800e9)
SIZES = (4096, 1 << 18, 1 << 21)
RANKS = (2, 3, 4, 7, 8)
GRIDS = ((2, 2), (2, 3), (4, 2))
LIMIT = 0.013
PARTS = {"bucket": 0.21, "swing": 0.21, "swing_latency": 0.22}  # here they share one cable, and meet as they come
ROUGH = {"bidirectional_ring": 0.11, "multi_ring": 0.05, "double_binary_tree": 0.24, **PARTS}
FOLDED = {"halving_doubling": 0.31, "halving": 0.06, "recursive_doubling": 0.07, "pat": 0.001}
FOLDED["all_reduce by recursive_doubling"] = 0.56  # who stands for nobody begins before the others
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
        for dims in (dims for dims in GRIDS if entry.fits(0, dims)):
            off |= {(dims, size): ratio(entry, dims[0] * dims[1], size, dims=dims) - 1 for size in SIZES}
    for ranks in RANKS if not off else ():
        if entry.min_ranks <= ranks <= (entry.max_ranks or ranks) and entry.fits(ranks):
            off |= {(ranks, size): ratio(entry, ranks, size) - 1 for size in SIZES}
    assert off

    limits = {at: ROUGH.get(entry.name, _limit(entry, at[0])) for at in off}
    assert not {at: by for at, by in off.items() if abs(by) > limits[at]}


def _limit(entry: Algorithm, ranks: int | tuple[int, ...]) -> float:
    folded = isinstance(ranks, int) and ranks & (ranks - 1)
    return FOLDED.get(str(entry), FOLDED.get(entry.name, LIMIT)) if folded else LIMIT


def test_adding_up_that_costs_nothing_takes_no_time() -> None:
    """As with hosts that would do it in no time at all: seven additions one after the other."""
    entry = ALGORITHMS["all_reduce", "ring"]
    free, endless = (
        named(entry.time)(Case.of(entry, 8, 4096, 4, {}, 1, Costs(reduce_bps=bps), WAYS)) for bps in (None, 1e30)
    )
    assert free == pytest.approx(endless, abs=1e-6)


IN_PIECES = {"bidirectional_ring": 0.09, "double_binary_tree": 0.26, "binomial_tree": 0.08}
IN_PIECES |= {"bucket": 0.1, "multi_ring": 0.15}  # whose parts share one cable here


@pytest.mark.parametrize("entry", [entry for entry in ENTRIES if "chunk" in entry.extra], ids=str)
def test_a_formula_in_pieces_says_what_its_messages_take(entry: Algorithm) -> None:
    """Of 16 packets each: those of rings, chains and halves follow each other without a gap."""
    if entry.shaped and entry.layout != "ports":
        off = {dims: ratio(entry, dims[0] * dims[1], 1 << 19, dims=dims, chunk=1 << 16) - 1 for dims in GRIDS}
    else:
        off = {(n,): ratio(entry, n, 1 << 19, chunk=1 << 16) - 1 for n in (2, 4, 8)}
    assert not {at: by for at, by in off.items() if abs(by) > IN_PIECES.get(entry.name, 0.002)}


@pytest.mark.parametrize("ranks", [4, 8, 16, 32])
def test_a_tree_that_reduces_in_pieces_waits_for_first_pieces_behind_others(ranks: int) -> None:
    """Those of a child with many below it come last, behind its siblings', which cannot be added up before."""
    entry = ALGORITHMS["reduce", "binomial_tree"]
    off = [ratio(entry, ranks, kib << 10, chunk=cut << 10) - 1 for kib, cut in ((512, 64), (1024, 16), (1024, 256))]
    assert max(map(abs, off)) < 0.065 and abs(off[-1]) < 0.022


UNEQUAL = [e for e in ENTRIES if "skew" in e.extra and e.collective.name.endswith("er_v") and e.name != "linear"]


@pytest.mark.parametrize("entry", UNEQUAL, ids=str)
def test_a_formula_of_unequal_parts_says_what_its_messages_take(entry: Algorithm) -> None:
    """Children that meet at their parent's cable, pieces that follow each other around a ring whatever their part."""
    told = [(n, size, skew) for n in (2, 7, 8) for size, skew in ((1 << 18, 1.0), (1 << 22, 0.5), (1 << 24, 1.0))]
    off = {its: ratio(entry, *its[:2], skew=its[2]) - 1 for its in told}
    if "chunk" in entry.extra:
        off |= {(*its, "64KiB"): ratio(entry, *its[:2], skew=its[2], chunk=1 << 16) - 1 for its in told}
    assert not {at: by for at, by in off.items() if abs(by) > 0.005}


@pytest.mark.parametrize("collective", ["all_gather_v", "reduce_scatter_v"])
def test_a_ring_in_pieces_comes_near_the_bound_by_counting(collective: str) -> None:
    """All but the smallest part must pass some rank's cable (82 bytes of headers for 4096), however uneven they are."""
    entry, size, n = ALGORITHMS[collective, "ring"], 1 << 24, 8
    for seed in range(2):
        case = Case.of(entry, n, size, 4, {"skew": 1.0, "chunk": 1 << 16}, seed, COSTS, WAYS)
        bound = (size - min(case.chunks)) * (1 + 82 / 4096) * 8e9 / 400e9
        assert 1 < (replayed(case, schedule_of(entry), inf) or 0) / bound < 1.06


ANYWHERE = [e for e in ALGORITHMS.values() if e.schedule and not e.shaped]


def test_a_star_is_a_uniform_path() -> None:
    """Whatever the fabric's cables and routes give for it."""
    experiment = loads("name: x\nfabric: {topology: {star: {hosts: 16}}}\nworkload: []")
    chooser = Chooser(experiment)
    for entry in ANYWHERE:
        if entry.max_ranks is None and entry.fits(6) and entry.collective.sized and "skew" not in entry.extra:
            step = CollectiveStep.model_validate(
                {
                    "collective": entry.collective.name,
                    "algorithm": entry.name,
                    "sizes": ["1MiB"],
                    "ranks": list(range(6)),
                }
            )
            (candidate,) = chooser.candidates(step)
            alone = closed_form_ns(entry, 6, 1 << 20, WAYS.way, COSTS)
            if entry.time:
                cases = (Case.of(entry, 6, 1 << 20, 4, {}, 1, COSTS, ways) for ways in (WAYS, candidate.ways))
                formula, on_a_star = (named(entry.time)(case) for case in cases)
                assert on_a_star == pytest.approx(formula), entry.name
            assert chooser.expected_ns(candidate, step, 1 << 20) == pytest.approx(alone), entry.name
