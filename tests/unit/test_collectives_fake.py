"""The hosts' collectives on the fake fabric: every type and reduction, any group and size, whatever the timing."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.parts.fake_fabric import FakeFabric
from tests.parts.fake_run import Line, collective, plan, run
from workloads.base.data import BLOCK_BYTES
from workloads.base.entry import Algorithm
from workloads.base.vocabulary import DTYPES, OPS, combines
from workloads.registry import ALGORITHMS

SCHEDULED = [e for e in ALGORITHMS.values() if e.schedule]
DISTINCT = list({e.schedule: e for e in reversed(SCHEDULED)}.values())[::-1]  # what others do, too, with unequal parts
GRIDS = {2: [2], 3: [3], 4: [2, 2], 7: [7], 8: [2, 2, 2], 16: [4, 4]}
RANKS = (2, 3, 4, 7)
IN_ALL = ALGORITHMS["all_reduce", "ring"]
MIB = 1 << 20


def step(entry: Algorithm, members: int, sizes: list[int], **more: Any) -> Line:
    dims = GRIDS.get(members, [members])
    if entry.layout == "rails":
        dims = [members // 2, 2] if members % 2 == 0 else [1, members]
    told = {"dims": dims, "senders": max(1, members // 3), "skew": 1.0, **more}
    return collective(entry.collective.name, sizes, algorithm=entry.name, **told)


def fits(entry: Algorithm, ranks: int) -> bool:
    return entry.fits(ranks, GRIDS[ranks] if entry.layout == "grid" else ())


def check(ranks: int, steps: list[Line], seed: int = 0) -> None:
    fake = FakeFabric(ranks, seed, any_order=seed % 2 == 1)
    lines, errors = run(fake, plan(ranks, *steps))
    assert (fake.error, errors) == (None, [])
    wrong = [(steps[line["step"]], line["rank"], line["size_bytes"], line["wrong"]) for line in lines if line["wrong"]]
    assert wrong == []
    expected = sum(len(s["ranks"] or range(ranks)) * len(s["sizes"]) * s["iterations"] for s in steps)
    assert len(lines) == expected


@pytest.mark.parametrize(
    ("entry", "ranks"),
    [
        pytest.param(e, ranks, id=f"{e}, {ranks} ranks")
        for e in SCHEDULED
        for ranks in ((*RANKS, 16) if e in DISTINCT and e.shaped else RANKS if e in DISTINCT else (3, 7))
        if (e.max_ranks is None or ranks <= e.max_ranks) and fits(e, ranks)
    ],
)
def test_every_type_and_reduction(entry: Algorithm, ranks: int) -> None:
    """On four ranks in many types and with many reductions, one in every combination of them; on others in a few."""
    steps = []
    kinds = list(enumerate(kind for kind in product(entry.ops or (None,), DTYPES) if combines(*kind)))
    first, every = ranks % len(kinds), max(12, 2 * ranks) if ranks < 16 else len(kinds)
    if ranks == 4:
        every = 1 if entry is IN_ALL else 7 if entry.ops else 3
        first = SCHEDULED.index(entry) % every
    for k, (op, dtype) in kinds[first::every]:
        width = DTYPES[dtype]
        counts = [(1, 3, 7919, ranks - 1, ranks + 1)[k % 5]]
        chunk = (None, 64, 1000 * width)[k % 3] if "chunk" in entry.extra else None
        chunk = chunk and max(chunk, counts[0] * width // 20)
        sizes = [n * width for n in counts] if entry.collective.sized else [0]
        steps.append(step(entry, ranks, sizes, dtype=dtype, op=op, chunk=chunk))
    check(ranks, steps, seed=ranks)


@pytest.mark.parametrize("entry", DISTINCT, ids=str)
def test_large_vectors(entry: Algorithm) -> None:
    """Of several chunks each; one is longer than what is filled and checked at a time."""
    ranks = min(8, entry.max_ranks or 8)
    sizes = [MIB + 4] if entry.collective.sized else [0]
    if entry is IN_ALL:
        sizes = [BLOCK_BYTES + 4, *sizes]
    check(ranks, [step(entry, ranks, sizes)])


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.sampled_from([e for e in SCHEDULED if e.max_ranks is None and not e.lengths]),
    st.integers(2, 9).flatmap(lambda n: st.tuples(st.just(n), st.permutations(range(n)), st.integers(2, n))),
    st.sampled_from([(dtype, op) for dtype in sorted(DTYPES) for op in OPS if combines(op, dtype)]),
    st.lists(st.integers(1, 40) | st.integers(1, 60_000), min_size=1, max_size=3),
    st.none() | st.integers(16, 100_000),
    st.integers(0, 2**32),
)
def test_any_group_in_any_order(
    entry: Algorithm,
    place: tuple[int, list[int], int],
    kind: tuple[str, str],
    counts: list[int],
    chunk: int | None,
    seed: int,
) -> None:
    (ranks, order, members), (dtype, op) = place, kind
    group = order[:members]
    sizes = [n * DTYPES[dtype] for n in counts] if entry.collective.sized else [0]
    if chunk is not None:
        chunk = max(chunk, max(sizes) // 250)
    told = step(entry, members, sizes, dtype=dtype, op=op, ranks=group, iterations=2, warmup=1, chunk=chunk)
    check(ranks, [told], seed)


@pytest.mark.parametrize("entry", [e for e in SCHEDULED if e.ops], ids=str)
def test_channels_that_add_up_by_themselves(entry: Algorithm) -> None:
    """Beside each other and the host, in whatever order they are through: each as its own clock says."""
    fake = FakeFabric(8)
    told = step(entry, 8, [40_000], iterations=2, chunk=4000)
    lines, errors = run(fake, plan(8, told, reduce_bps=8e9, by_channel=True))
    assert (fake.error, errors, {line["wrong"] for line in lines}) == (None, [], {0})
    assert fake.computations > 0


def test_steps_with_different_needs_of_memory_follow_each_other() -> None:
    """A group gathers little, then reduces much, then exchanges: memory grows, and connections are made anew."""
    entries = [ALGORITHMS[key] for key in (("gather", "linear"), ("all_reduce", "halving_doubling"), ("n2m", "write"))]
    check(5, [step(e, 5, [size]) for e in entries for size in (40, 40_000, 400_000)])


def test_the_algorithm_may_depend_on_the_size() -> None:
    told = step(ALGORITHMS["all_reduce", "ring"], 4, [400, 4000, 40_000], iterations=2)
    chosen = {"algorithm": "halving_doubling", "ranks": None}
    told |= {"algorithm": "auto", "chosen": {"400": chosen, "4000": {"algorithm": "ring", "ranks": [0, 2, 1, 3]}}}
    told["chosen"]["40000"] = {"algorithm": "torus", "ranks": [0, 1, 2, 3], "dims": [2, 2]}
    fake = FakeFabric(4)
    lines, errors = run(fake, plan(4, told))
    assert (fake.error, errors, {line["wrong"] for line in lines}) == (None, [], {0})
    found = {(line["size_bytes"], line["algorithm"]) for line in lines}
    assert found == {(400, "halving_doubling"), (4000, "ring"), (40_000, "torus")}


@pytest.mark.parametrize("entry", [e for e in DISTINCT if e.collective.sized], ids=str)
def test_damage_is_counted(entry: Algorithm) -> None:
    """Messages in turn: a byte that is wrong on the way is wrong in somebody's result."""
    ranks = min(4 if entry.lengths else 3, entry.max_ranks or 4)
    told = step(entry, ranks, [3000], chunk=1500, dtype="int32")  # in a float the damage may be rounded away

    def counted(iterations: int, damaged: frozenset[int] = frozenset()) -> tuple[int, set[int], set[int]]:
        """How many messages there are, which were damaged, and which iterations are wrong."""
        fake, seen = FakeFabric(ranks), set[int]()
        fake.corrupt = lambda message: message in damaged and not seen.add(message)
        lines, errors = run(fake, plan(ranks, {**told, "iterations": iterations}))
        assert (fake.error, errors) == (None, [])
        return fake.messages, seen, {line["iteration"] for line in lines if line["wrong"]}

    once, twice = counted(1)[0], counted(2)[0]
    each = twice - once
    numbers = range(0, each, max(1, each // 12))
    where = {once - each + k * each + number: k for k, number in enumerate(numbers)}
    _, seen, wrong = counted(len(numbers), frozenset(where))
    assert wrong == {where[message] for message in seen}  # each in its own iteration, and no other
    assert seen


@pytest.mark.parametrize(
    ("name", "algorithm", "ranks", "parts", "sizes", "messages"),
    [
        ("gather_v", "linear", 4, [[4, 1, 1, 0]], [96], 2),
        ("scatter_v", "linear", 4, [[0, 1, 0, 1]], [96], 2),
        ("gather_v", "binomial_tree", 4, [[1, 1, 0, 0]], [96], 1),  # rank 2's subtree has nothing
        ("m2n", "write", 4, [[0, 1], [1, 1]], [96], 3),
        ("gather_v", "linear", 4, [[4, 1, 1, 1]], [4, 96], 0 + 3),  # of one element only rank 0 has a part
        ("all_gather_v", "ring", 4, [[4, 1, 1, 0]], [96], 4 * 3),  # whose ranks meet
    ],
)
def test_who_has_nothing_sends_nothing(
    name: str, algorithm: str, ranks: int, parts: list[list[int]], sizes: list[int], messages: int
) -> None:
    fake = FakeFabric(ranks, 3)
    more = {"senders": ranks // 2, "parts": parts, "skew": None, "op": None}
    lines, errors = run(fake, plan(ranks, collective(name, sizes, algorithm=algorithm, **more)))
    assert (fake.error, errors, {line["wrong"] for line in lines}) == (None, [], {0})
    assert fake.messages == messages
