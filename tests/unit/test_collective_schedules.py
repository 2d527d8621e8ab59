"""Schedules of the hosts' collectives as pure data: safe whatever the timing, and right, for any group and size."""

from __future__ import annotations

from dataclasses import replace
from math import prod

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.parts.schedule_checker import check_result, execute, races
from workloads.base.entry import EVEN, POWERS, Algorithm
from workloads.base.uneven import by_weights as by_table
from workloads.base.uneven import uneven
from workloads.base.vocabulary import MOST_PIECES
from workloads.check import check as checker
from workloads.check.memory import Wrong
from workloads.collectives import exchange, halving, trees
from workloads.collectives.schedule import (
    VECTOR,
    Copy,
    Lane,
    Program,
    Recv,
    Send,
    Shape,
    Span,
    connections,
    pieces,
    places,
    schedule_of,
    spans,
    steps,
)
from workloads.collectives.shape import shape_of
from workloads.registry import ALGORITHMS

SCHEDULED = [e for e in ALGORITHMS.values() if e.schedule]
FULL = settings(max_examples=15, deadline=None)


def grids(ranks: int, draw: st.DrawFn) -> list[int]:
    """Dimensions whose product is `ranks`."""
    dims, rest = [], ranks
    while rest > 1:
        n = draw(st.sampled_from([d for d in range(2, rest + 1) if rest % d == 0]))
        dims.append(n)
        rest //= n
    return dims


@st.composite
def shapes(draw: st.DrawFn, entry: Algorithm) -> Shape:
    most = entry.max_ranks or 9
    ranks = draw(st.integers(2, most) | st.just(min(16, most)))
    if entry.lengths == POWERS:
        ranks = draw(st.sampled_from([2, 4, 8, 16]))
    dims = grids(ranks, draw) if entry.shaped else []
    if entry.lengths == EVEN:
        dims = draw(st.lists(st.sampled_from([2, 4, 6]), min_size=1, max_size=3).filter(lambda d: prod(d) <= 16))
        ranks = prod(dims)
    if entry.layout == "rails":
        dims = [prod(dims[:-1]), dims[-1]]
    options = {
        "chunk": draw(st.none() | st.integers(1, 60)) if "chunk" in entry.extra else None,
        "senders": draw(st.integers(1, ranks - 1)),
        "skew": draw(st.sampled_from([0.0, 0.3, 1.0])),
        "dims": dims,
    }
    count = draw(st.integers(1, 12) | st.integers(1, 150)) if entry.collective.sized else 0
    shape = shape_of(entry, ranks, count, 1, options, draw(st.integers(0, 2**32)))
    return replace(shape, eager=draw(st.sampled_from([0, 1, 10, shape.eager])))


@pytest.mark.parametrize("entry", SCHEDULED, ids=str)
def test_no_write_meets_another_use_of_its_memory_and_the_result_is_right(entry: Algorithm) -> None:
    """And who a program is with is known before its steps are made: connections are made of that, messages of these."""
    schedule = schedule_of(entry)

    @FULL
    @given(shapes(entry), st.integers(0, 2**32))
    def check(shape: Shape, seed: int) -> None:
        checker.check(entry, schedule, shape)
        for index in range(shape.ranks):
            program = schedule(shape, index)
            known = connections(program)
            used = {(s.peer, s.channel) for s in steps(program) if not isinstance(s, Copy)}
            assert known == sorted(used) or (shape.counts and used < set(known))  # nothing for somebody: with this size
            assert (index, 0) not in known
        rng = np.random.default_rng(seed)
        vectors = [rng.integers(-1000, 1000, shape.length(i)).astype(float) for i in range(shape.ranks)]
        check_result(entry.collective.name, shape, vectors, execute(schedule, shape, vectors, seed))

    check()


def test_who_is_alone_along_a_dimension_has_nobody_beside_it() -> None:
    for dims in ((3, 1), (1, 3)):
        assert connections(schedule_of(ALGORITHMS["all_reduce", "torus"])(Shape(3, 12, dims=dims), 0)) == [
            (1, 0),
            (2, 0),
        ]


def test_one_rank_may_receive_all_that_the_others_have() -> None:
    """Eight senders' 125 elements each, and nothing of its own: more than any vector's length says."""
    counts = ((0,) * 8 + (125,),) * 8 + ((0,) * 9,)
    shape = Shape(9, 125, senders=8, counts=counts)
    vectors = [np.arange(shape.length(i)) + 1000.0 * i for i in range(9)]
    for entry in (ALGORITHMS["m2n", "write"], ALGORITHMS["all_to_all_v", "spread"]):
        check_result(entry.collective.name, shape, vectors, execute(schedule_of(entry), shape, vectors, 1))


def test_unequal_chunks_are_those_of_a_row() -> None:
    """3 : 0 : 5 of 16 elements: rank 0's first six, then rank 2's ten; and by skew they add up to all."""
    entry = ALGORITHMS["gather_v", "linear"]
    shape = shape_of(entry, 3, 16, 1, {"parts": [[3, 0, 5]]}, 1)
    vectors = [100.0 * i + np.arange(16) for i in range(3)]
    end = execute(schedule_of(entry), shape, vectors, 1)[0][VECTOR]
    assert end.tolist() == [*range(6), *range(206, 216)]
    drawn = shape_of(entry, 3, 16, 1, {"skew": 1.0}, 1)
    assert sum(drawn.counts[0]) == 16 and len(set(drawn.counts[0])) > 1 and len(drawn.counts) == 1


BARRIER = ALGORITHMS["barrier", "dissemination"]


@pytest.mark.parametrize("ranks", [*range(2, 10), 16, 19])
def test_nobody_leaves_a_barrier_before_all_have_come(ranks: int) -> None:
    checker.check(BARRIER, schedule_of(BARRIER), Shape(ranks, 0))

    def without_the_last_round(shape: Shape, index: int) -> Program:
        (lane,) = exchange.dissemination_barrier(shape, index)
        return [Lane(lane.steps[:-2])]

    with pytest.raises(Wrong, match=r"rank \d+: it leaves before rank \d+ has come"):
        checker.check(BARRIER, without_the_last_round, Shape(ranks, 0))


def unsafe(shape: Shape, index: int) -> Program:
    """Both send to each other and write over what they still send."""
    other = 1 - index
    return [Lane([Send(other, 0, shape.count), Recv(other, 0, shape.count)])]


def stuck(shape: Shape, index: int) -> Program:
    """Each waits for the other before it sends."""
    other = 1 - index
    return [Lane([Recv(other, 0, 1), Send(other, 0, 1)])]


def test_the_checker_sees_what_is_wrong() -> None:
    shape = Shape(2, 10)
    assert "race" in races(unsafe, shape)[0]
    with pytest.raises(Wrong, match="deadlock"):
        races(stuck, shape)
    with pytest.raises(AssertionError, match="stuck"):
        execute(stuck, shape, [np.zeros(10)] * 2, 1)
    with pytest.raises(Wrong, match="rank 1 receives 0 messages"):
        races(lambda shape, index: [Lane([Send(1 - index, 0, 1)])], shape)


@given(st.integers(0, 10_000), st.integers(1, 300) | st.none(), st.integers(0, 50))
def test_pieces_cover_a_span_and_none_is_longer_than_a_chunk(count: int, chunk: int | None, start: int) -> None:
    cut = pieces(start, start + count, chunk)
    assert cut[0].start == start and cut[-1].stop == start + count
    assert all(a.stop == b.start for a, b in zip(cut, cut[1:], strict=False))
    lengths = [p.stop - p.start for p in cut]
    assert chunk is None or max(lengths) <= chunk
    assert max(lengths) - min(lengths) <= 1


def test_trees_span_all_ranks_and_a_parent_in_one_of_two_is_a_leaf_in_the_other() -> None:
    for ranks in range(2, 70):
        two_trees(ranks)


def two_trees(ranks: int) -> None:
    for second in (False, True):
        nodes = [trees.binary(i, ranks, second=second) for i in range(ranks)]
        depths = []
        for i, node in enumerate(nodes):
            assert len(node.children) <= 2
            assert all(nodes[c].parent == i for c in node.children)
            depth, above = 0, node.parent
            while above is not None:
                depth, above = depth + 1, nodes[above].parent
            depths.append(depth)
        assert sum(node.parent is None for node in nodes) == 1
        assert max(depths) <= ranks.bit_length()
    parents = [{i for i in range(ranks) if trees.binary(i, ranks, second=s).children} for s in (False, True)]
    assert len(parents[0] & parents[1]) <= (ranks % 2), "with an odd number one rank may be both"
    binomial = [trees.binomial(i, ranks) for i in range(ranks)]
    assert sorted(c for node in binomial for c in node.children) == list(range(1, ranks))


@given(st.integers(2, 100), st.integers(0, 10_000))
def test_who_stands_for_whom(ranks: int, count: int) -> None:
    folded = halving.Folded(ranks)
    places_ = [folded.participant(i) for i in range(ranks)]
    assert [p for p in places_ if p is not None] == list(range(folded.participants))
    assert [folded.rank(p) for p in range(folded.participants)] == [i for i in range(ranks) if places_[i] is not None]
    assert {folded.stands_for(i) for i in range(ranks)} - {None} == {i for i in range(ranks) if places_[i] is None}
    blocks = folded.blocks(count)
    assert blocks[0].start == 0 and blocks[-1].stop == count
    assert all(a.stop == b.start for a, b in zip(blocks, blocks[1:], strict=False))


@FULL
@given(st.integers(2, 20), st.integers(0, 5000), st.floats(0, 1), st.integers(0, 2**63 - 1), st.integers(1, 19))
def test_unequal_counts(ranks: int, count: int, skew: float, seed: int, senders: int) -> None:
    counts = uneven(ranks, count, skew, seed)
    assert all(sum(row) == count and min(row) >= 0 for row in counts)
    if skew == 0:
        assert all(max(row) - min(row) <= 1 for row in counts)
    senders = min(senders, ranks - 1)
    there = uneven(ranks, count, skew, seed, senders)
    assert [sum(row) for row in there] == [count] * senders + [0] * (ranks - senders)
    assert not any(n for row in there for n in row[:senders])
    back = uneven(ranks, count, skew, seed, senders, transposed=True)
    received = [sum(row[j] for row in back) for j in range(ranks)]
    assert received == [0] * senders + [count] * (ranks - senders)


def test_unequal_counts_do_not_depend_on_the_machine() -> None:
    assert uneven(4, 1000, 1.0, 7) == uneven(4, 1000, 1.0, 7)
    assert uneven(4, 1000, 1.0, 7) != uneven(4, 1000, 1.0, 8)
    assert uneven(4, 1000, 1.0, 7)[0] == (174, 469, 237, 120)


@pytest.mark.parametrize("entry", [e for e in SCHEDULED if "chunk" in e.extra], ids=str)
def test_the_smallest_chunk_allowed_leaves_receives_that_a_queue_pair_takes(entry: Algorithm) -> None:
    """At a sixteenth of the pieces a sixteenth of the receives; all of them once."""
    for ranks, share in ((2, 16), (3, 16), (16, 16), *([(3, 1)] if entry is ALGORITHMS["all_reduce", "ring"] else [])):
        dims = [ranks // 2, 2] if ranks % 2 == 0 else [1, ranks]
        shape = shape_of(entry, ranks, MOST_PIECES // share * 7, 1, {"chunk": 7, "dims": dims}, 1)
        for index in {0, 1, ranks // 2, ranks - 1}:
            wanted, _ = places(schedule_of(entry)(shape, index))
            assert max((len(found) for found in wanted.values()), default=0) <= 16384 // share


def test_staging_is_no_more_than_is_reduced() -> None:
    program = schedule_of(ALGORITHMS["all_reduce", "ring"])(Shape(4, 100), 1)
    assert places(program)[1] == sum(s.stop - s.start for s in steps(program) if isinstance(s, Recv) and s.reduce) == 75
    assert spans(10, 3, 5) == (Span(5, 9), Span(9, 12), Span(12, 15))


def test_counts_by_a_table() -> None:
    """Exact where shares are whole, by largest remainder else; the largest row has all of the vector."""
    assert by_table([[3, 1], [0, 2]], 4, 400, senders=2) == ((0, 0, 300, 100), (0, 0, 0, 200), (0,) * 4, (0,) * 4)
    assert by_table([[3, 1], [0, 2]], 4, 400, 2, True) == ((0, 0, 300, 0), (0, 0, 100, 200), (0,) * 4, (0,) * 4)
    assert by_table([[0, 1, 1], [2, 0, 0], [0, 0, 0]], 3, 5) == ((0, 3, 2), (5, 0, 0), (0, 0, 0))
