"""What NICs can do besides adding: block floating point on the cables, and optimizer steps."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from hardware.config import Hardware
from tests.parts.ring_fabric import (
    ADAM,
    ALL_GATHER,
    ALL_REDUCE,
    ENGINE,
    LOAD,
    REDUCE_SCATTER,
    SGD,
    Rank,
    Ring,
    bfp,
    chunks_of,
    compressed_chunk,
    fill,
    ranks,
    reduced,
    same,
)
from workloads.offloads.optimizers import OPTIMIZERS, Adam, Optimizer, Sgd
from workloads.verbs import wire

RANKS = 4
FEW = settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))


@pytest.fixture(scope="module")
def members() -> Iterator[list[Rank]]:
    with ranks(RANKS, 1 << 19) as (_, made):
        yield made


def wide(random: np.random.Generator, dtype: str, count: int) -> NDArray[np.float32]:
    """Numbers of very different sizes."""
    return (random.standard_normal(count) * 2.0 ** random.normal(0, 8, count)).astype(np.float32)


@FEW
@given(st.integers(0, 2**32), st.integers(1, 20_000))
def test_compressed_sums(members: list[Rank], seed: int, count: int) -> None:
    """The same bits as numpy makes, the same at every rank, and not further off than is said."""
    ring = Ring(members, "float32", 1 << 19, compressed=1)
    inputs = fill(members, "float32", count, seed, wide)
    ring.run(count)
    exact = np.sum(np.asarray(inputs, dtype=np.float64), axis=0)
    for g, chunk in enumerate(chunks_of(count, RANKS)):
        sums, off = compressed_chunk(inputs, g, chunk)
        for m in members:
            got = m.output("float32", count)[chunk].copy()
            assert np.array_equal(got, bfp(sums))
            assert np.all(np.abs(got - exact[chunk]) <= off)
    ring.leave()


def test_compression_is_not_idle(members: list[Rank]) -> None:
    """A small number beside a large one in its block is lost, and by no more than the bound."""
    ring = Ring(members, "float32", 1 << 19, compressed=1)
    for m in members:
        m.input("float32", 64)[:] = 2.0**-12
        m.input("float32", 64)[0] = 2.0**20
    ring.run(64)
    got = members[0].output("float32", 64)
    assert got[0] == 2.0**22 and np.all(got[1:16] == 0)
    assert np.all(got[16:] == 2.0**-10), "other blocks are exact"
    ring.leave()


@pytest.mark.parametrize("bad", [np.inf, -np.inf, np.nan])
def test_a_block_with_no_number_in_it_is_none_everywhere(members: list[Rank], bad: float) -> None:
    ring = Ring(members, "float32", 1 << 19, compressed=1)
    for m in members:
        m.input("float32", 400)[:] = 1
    members[2].input("float32", 400)[105] = bad  # the first block of the second chunk
    ring.run(400)
    for m in members:
        got = m.output("float32", 400)
        assert np.all(np.isnan(got[100:116])) and np.all(np.delete(got, range(100, 116)) == RANKS)
    ring.leave()


def test_compression_sends_fewer_packets(members: list[Rank]) -> None:
    """17 bytes for 64: 240 blocks of 16 in a packet of 4080 bytes."""
    took = {}
    for compressed in (0, 1):
        with ranks(2, 1 << 21, Hardware(nic=ENGINE, cable_rate_bps=40e9)) as (f, pair):
            ring = Ring(pair, "float32", 1 << 21, compressed=compressed)
            took[compressed] = max(ring.run(3840 * 128))
            assert f.nic(0)["engine_diverted_packets"] == 2 * (64 if compressed else 240)
    assert took[0] / took[1] == pytest.approx(4096 / 1024 * 3840 / 4080 * (4178 / 4096) / (4162 / 4080), rel=0.03)


def test_only_the_part_is_written_of_a_compressed_reduce_scatter(members: list[Rank]) -> None:
    ring = Ring(members, "float32", 1 << 19, compressed=1)
    inputs = fill(members, "float32", 5000, 3, wide)
    ring.run(5000, REDUCE_SCATTER, "avg")
    for g, (m, chunk) in enumerate(zip(members, chunks_of(5000, RANKS), strict=True)):
        sums, _ = compressed_chunk(inputs, g, chunk)
        assert np.array_equal(m.output("float32", 5000)[chunk], sums / np.float32(RANKS)), "not rounded once more"
    ring.leave()


def with_state(optimizer: str, random: np.random.Generator) -> Optimizer:
    made: Optimizer
    if optimizer == "sgd":
        made = Sgd(rate=float(random.uniform(0.001, 0.5)), momentum=float(random.uniform(0, 0.99)))
    else:
        made = Adam(rate=float(random.uniform(1e-4, 0.1)), beta1=float(random.uniform(0.5, 0.99)))
    return made


@settings(FEW, max_examples=8)
@given(
    st.sampled_from(list(OPTIMIZERS)), st.integers(0, 2**32), st.integers(1, 20_000), st.sampled_from(["sum", "avg"])
)
def test_steps_are_those_of_a_host(members: list[Rank], optimizer: str, seed: int, count: int, op: str) -> None:
    """Parameters go in once; then gradients in, parameters out, to the last bit."""
    random = np.random.default_rng(seed)
    ring = Ring(members, "float32", 4 * count, optimizer={"sgd": SGD, "adam": ADAM}[optimizer])
    parameters = wide(random, "float32", count)
    for m in members:
        m.input("float32", count)[:] = parameters
    ring.run(count, LOAD)
    state = random.bit_generator.state
    there = with_state(optimizer, random)
    random.bit_generator.state = state
    here = with_state(optimizer, random)
    for step in range(3):
        inputs = fill(members, "float32", count, seed + step, wide)
        ring.run(count, ALL_REDUCE, op, there.step_args())
        with np.errstate(all="ignore"):
            here.update(parameters, reduced(inputs, "float32", op))
        assert all(same(m.output("float32", count).copy(), parameters) for m in members)
    ring.leave()


def test_state_takes_memory() -> None:
    """Adam: three arrays of our part."""
    with ranks(2, 1 << 20, Hardware(nic={**ENGINE, "engine_memory_bytes": 16 << 20})) as (f, pair):
        used: dict[int, int] = {}
        for optimizer in (0, SGD, ADAM):
            assert not Ring(pair, "float32", 1 << 20, optimizer=optimizer).refused
            used[optimizer] = f.nic(0)["engine_used_bytes"] - sum(used.values())
        assert used[SGD] - used[0] == 2 << 19 and used[ADAM] - used[0] == 3 << 19
        assert "bytes free" in Ring(pair, "float32", 1 << 22, optimizer=ADAM).refused


@pytest.mark.parametrize(
    ("count", "collective", "args", "words"),
    [
        (1000, ALL_REDUCE, (), "whole vector"),
        (1024, ALL_GATHER, (), "whole vector"),
        (1024, ALL_REDUCE, (0x7FC00000,), "arguments that are numbers"),
    ],
)
def test_steps_that_cannot_be(count: int, collective: int, args: tuple[int, ...], words: str) -> None:
    with ranks(2) as (_, pair):
        ring = Ring(pair, "float32", 4096, optimizer=SGD)
        first = pair.pop(0)
        first.send(ring.request(first, count, collective, args=args))
        assert words in first.reason()


def test_parameters_cannot_be_loaded_under_way() -> None:
    """A load that comes behind a step in one packet is taken when it is posted, and breaks nothing."""
    with ranks(2) as (_, pair):
        ring = Ring(pair, "float32", 1 << 16, optimizer=SGD)
        for m in pair:
            m.send(ring.request(m, 1 << 14), ring.request(m, 1 << 14, LOAD))
            m.begin_wait(2, wire.FOREVER)
        assert all(len(m.end_wait()) >= 1 for m in pair)
