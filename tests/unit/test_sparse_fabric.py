"""Sparse collectives on the fake fabric: any group, size, type and density, with messages that take any time."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.parts.fake_fabric import FakeFabric
from tests.parts.fake_run import collective, plan, run
from tests.parts.sparse_bytes import omniccl_bytes, omnireduce_bytes
from tests.parts.sparse_share import union_share
from workloads.base.vocabulary import DTYPES
from workloads.sparse.inputs import SparseInputs
from workloads.sparse.layout import Layout
from workloads.sparse.spots import Windows

FULL = settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.too_slow])
KIB, MIB = 1 << 10, 1 << 20


@FULL
@given(
    st.integers(2, 8).flatmap(lambda n: st.tuples(st.just(n), st.permutations(range(n)), st.integers(2, n))),
    st.sampled_from(sorted(DTYPES)),
    st.sampled_from(["sum", "avg"]),
    st.lists(st.integers(1, 40) | st.integers(1, 10_000), min_size=1, max_size=2),
    st.fixed_dictionaries(
        {
            "density": st.sampled_from([0.0, 0.01, 0.1, 0.5, 1.0]),
            "overlap": st.sampled_from([0.0, 0.5, 1.0]),
            "block": st.sampled_from([1, 3, 64, 256]),
            "fusion": st.sampled_from([1, 4, 32]),
            "slots": st.sampled_from([1, 2, 7, 256]),
        }
    ),
    st.integers(0, 6),
    st.integers(0, 2**32),
)
def test_omnireduce_is_right_whatever_the_timing(
    place: tuple[int, list[int], int], dtype: str, op: str, counts: list[int], options: dict, dedicated: int, seed: int
) -> None:
    ranks, order, members = place
    group = order[:members]
    if options["block"] < 64:
        counts = [min(count, 150) for count in counts]  # each of a few elements is a message
    aggregators = dedicated if 0 < dedicated <= members - 2 else None
    sizes = [count * DTYPES[dtype] for count in counts]
    step = collective(
        "all_reduce", sizes, algorithm="omnireduce", dtype=dtype, op=op, ranks=group, iterations=2, warmup=1,
        **options, aggregators=aggregators,
    )  # fmt: skip
    fake = FakeFabric(ranks, seed)
    lines, errors = run(fake, plan(ranks, step))
    assert (fake.error, errors) == (None, [])
    assert len(lines) == len(group) * len(sizes) * 2
    assert {line["wrong"] for line in lines} == {0}


@pytest.mark.parametrize(
    ("density", "aggregators"), [(1.0, None), (0.25, None), (0.25, 1), (0.25, 2), (0.01, None), (0.01, 2), (0.0, 1)]
)
def test_what_a_worker_moves_is_the_stated_function_of_density(density: float, aggregators: int | None) -> None:
    """Blocks of its own there, blocks of the sum back, a header for each message."""
    workers, blocks, block = 4, 512 if density > 0.1 else 4096, 64
    options = {"density": density, "overlap": 0.0, "block": block, "fusion": 4, "slots": 64, "aggregators": aggregators}
    ranks = workers + (aggregators or 0)
    step = collective("all_reduce", [blocks * block * 4], algorithm="omnireduce", **options)
    fake = FakeFabric(ranks, 1)
    lines, errors = run(fake, plan(ranks, step))
    assert (fake.error, errors) == (None, [])
    inputs = SparseInputs(1, workers, "float32", "sum", block, density, 0.0)
    masks = [inputs.nonzero(index, blocks, variant=1) for index in range(workers)]
    sent, received = omnireduce_bytes(masks, Layout.of(blocks * block, block, 4, 64), 4)
    said = {line["rank"]: (line.get("tx_bytes"), line.get("rx_bytes")) for line in lines}
    assert said == {rank: (sent[rank], received) if rank < workers else (None, None) for rank in range(ranks)}
    data = round(density * blocks) * block * 4
    for nbytes in sent:  # density x size, and headers: at most one for each block and slot
        assert data + 64 * 24 <= nbytes <= data + (64 + round(density * blocks)) * 24
    share = union_share(density, workers)
    assert received == pytest.approx(share * blocks * block * 4, rel=0.1, abs=64 * 24)


@FULL
@given(
    st.integers(2, 6).flatmap(lambda n: st.tuples(st.permutations(range(n)), st.integers(2, n), st.integers(1, 6))),
    st.sampled_from(sorted(DTYPES)),
    st.sampled_from(["sum", "avg"]),
    st.lists(st.integers(1, 40) | st.integers(1, 10_000), min_size=1, max_size=2),
    st.sampled_from([0.0, 0.01, 0.1, 0.5, 1.0]),
    st.sampled_from([(1, 1), (3, 5), (64, 16), (256, 64)]),
    st.integers(0, 2**32),
)
def test_omniccl_is_right_whatever_the_timing(
    place: tuple[list[int], int, int],
    dtype: str,
    op: str,
    counts: list[int],
    density: float,
    grain: tuple[int, int],
    seed: int,
) -> None:
    order, members, complexes = place
    ranks, group = len(order), order[:members]
    block, spot = grain
    counts = [min(count, 150) for count in counts] if block < 64 else counts
    sizes = [count * DTYPES[dtype] for count in counts]
    helpers = [ranks + rank for rank in group[: min(complexes, members)]]
    step = collective(
        "all_reduce", sizes, algorithm="omniccl", dtype=dtype, op=op, ranks=group, helpers=helpers, iterations=2,
        warmup=1, density=density, block=block, spot=spot,
    )  # fmt: skip
    fake = FakeFabric(2 * ranks, seed, any_order=seed % 2 == 1)
    lines, errors = run(fake, plan(ranks, step))
    assert (fake.error, errors) == (None, [])
    assert len(lines) == len(group) * len(sizes) * 2  # complexes have no result of their own
    assert {line["wrong"] for line in lines} == {0}


@pytest.mark.parametrize("density", [1.0, 0.25, 0.01, 0.0])
def test_omniccl_moves_what_is_stated(density: float) -> None:
    workers, blocks, block, spot = 4, 1023, 64, 32
    step = collective(
        "all_reduce", [blocks * block * 4 - 40], algorithm="omniccl", density=density, block=block, spot=spot,
        helpers=[4, 6],
    )  # fmt: skip
    fake = FakeFabric(2 * workers, 1)
    lines, errors = run(fake, plan(workers, step))
    assert (fake.error, errors) == (None, [])
    inputs = SparseInputs(1, workers, "float32", "sum", block, density, 0.0)
    masks = [inputs.nonzero(index, blocks, variant=1) for index in range(workers)]
    sent, received = omniccl_bytes(masks, Windows.of_vector(blocks * block - 10, block, spot, 2), 4)
    assert {line["rank"]: (line["tx_bytes"], line["rx_bytes"]) for line in lines} == {
        rank: (sent[rank], received) for rank in range(workers)
    }
    most = round(density * blocks) * (block * 4 + 4) + 128 * 16
    assert all(most - 128 * 16 - 40 <= nbytes <= most for nbytes in sent)


@pytest.mark.parametrize("algorithm", ["omnireduce", "omniccl"])
def test_ranks_with_other_steps_besides_agree_on_where_things_lie(algorithm: str) -> None:
    """One rank has a large vector in another step, its peers have not."""
    helpers = {"helpers": [6, 7], "spot": 256} if algorithm == "omniccl" else {}
    steps = [
        collective("all_reduce", [MIB], ranks=[0, 1]),
        collective("all_reduce", [5 * KIB], algorithm=algorithm, ranks=[1, 2, 3], block=16, density=0.5, **helpers),
    ]
    fake = FakeFabric(8, 3)
    lines, errors = run(fake, plan(4, *steps))
    assert (fake.error, errors) == (None, [])
    assert [line["wrong"] for line in lines] == [0] * 5


def test_a_result_that_was_changed_on_the_way_is_found() -> None:
    step = collective("all_reduce", [64 * KIB], algorithm="omnireduce", density=0.5)
    fake = FakeFabric(3, 2)
    fake.corrupt = lambda message: message == 40
    lines, errors = run(fake, plan(3, step))
    assert fake.error or errors or sum(line["wrong"] for line in lines) > 0
