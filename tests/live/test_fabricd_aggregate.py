"""Fixed point in the network: how far a sum may be off, and what becomes of values that it cannot hold."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from testbed.fabric.lab import Lab
from tests.parts.offload_fabric import offload_fabric, on_ranks
from workloads.base import data
from workloads.offloads.in_network import IN_PARTS, TO_ALL, TO_ONE
from workloads.verbs import Device, wire

RANKS = 4
UNTOUCHED = 0x5A  # what a result's bytes are before
ARGS = (16, 64, 100_000_000, 7, 0)  # slots, elements, timeout in ps, retry, no cost of conversion
TIMES = iter(range(10**6))
FEW = settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))


@pytest.fixture(scope="module")
def sums() -> Iterator[Any]:
    """A function: inputs by rank -> what each rank gets. One fabric and session of each rank for all calls."""
    with offload_fabric("{star: {hosts: 4}}") as lab:
        yield Sums(lab)


class Sums:
    """Ranks that live as long as the fabric: a session cannot be had twice."""

    def __init__(self, lab: Lab) -> None:
        lab.fabricd.request("start", ranks=list(range(RANKS)))
        self.devices = [Device.__new__(Device) for _ in range(RANKS)]
        self.lab = lab
        self.opened = False

    def __call__(
        self, inputs: list[NDArray[Any]], op: str = "sum", dtype: str = "float32", wanted: int = TO_ALL
    ) -> list[NDArray[Any]]:
        self.inputs, self.op, self.dtype, self.wanted = inputs, op, dtype, wanted
        return self.in_parallel(self._sum)

    def in_parallel(self, work: Any) -> list[Any]:
        """What each rank has of it."""
        from concurrent.futures import ThreadPoolExecutor

        if not self.opened:
            self.opened = True
            self.in_parallel(self._open)
        with ThreadPoolExecutor(RANKS) as pool:
            return list(pool.map(work, range(RANKS)))

    def _open(self, rank: int) -> None:
        device = Device(str(self.lab.worker_dir(rank) / "sock"))
        self.devices[rank] = device
        group = device.group("aggregate", 1, range(RANKS), ARGS)
        assert not group.refused
        device.made = (group, device.region(1 << 16), device.region(1 << 16))  # type: ignore[attr-defined]

    def _sum(self, rank: int) -> NDArray[Any]:
        device, mine = self.devices[rank], self.inputs[rank]
        group, source, target = device.made  # type: ignore[attr-defined]
        source.view(mine.dtype.str, 0, len(mine))[:] = mine
        target.view("u1", 0, mine.nbytes)[:] = UNTOUCHED
        group.post(source, 0, target, 0, len(mine), reduction=self.op, dtype=self.dtype, collective=self.wanted)
        (record,) = device.wait()
        assert record.kind == wire.OFFLOADED
        result: NDArray[Any] = target.view(mine.dtype.str, 0, len(mine)).copy()
        return result


def bound(inputs: list[NDArray[Any]], elements: int = 64) -> NDArray[np.float64]:
    """n values, each rounded by half of 2^(e + log2 n - 30) at most, and the sum to float32 once."""
    largest = np.max(np.abs(inputs), axis=0)
    exact = np.sum(np.asarray(inputs, dtype=np.float64), axis=0)
    limits = np.empty(len(largest))
    for at in range(0, len(largest), elements):
        block = largest[at : at + elements]
        e = math.frexp(float(block.max()))[1]
        step = 2.0 ** (e + math.ceil(math.log2(len(inputs))) - 30)
        limits[at : at + elements] = len(inputs) * step / 2
    return limits + np.abs(exact) * 2.0**-24 + 2.0**-149


@FEW
@given(st.integers(0, 2**32), st.integers(1, 300), st.floats(-30, 30), st.floats(0, 20))
def test_sums_are_within_the_bound(sums: Sums, seed: int, count: int, centre: float, spread: float) -> None:
    """Numbers whose sizes differ by many orders of magnitude, within a block and between blocks and ranks."""
    random = np.random.default_rng(seed)
    inputs = [
        (random.standard_normal(count) * 2.0 ** random.normal(centre, spread, count)).astype(np.float32)
        for _ in range(RANKS)
    ]
    got = sums(inputs)
    exact = np.sum(np.asarray(inputs, dtype=np.float64), axis=0)
    assert all(np.array_equal(one, got[0]) for one in got[1:]), "every rank has the same bits"
    assert np.all(np.abs(got[0] - exact) <= bound(inputs))


def test_the_bound_is_not_idle(sums: Sums) -> None:
    """A small number beside a large one in its block is lost: only by less than the bound."""
    inputs = [np.array([2.0**20, 2.0**-12], dtype=np.float32) for _ in range(RANKS)]
    got = sums(inputs)[0]
    assert got[0] == 2.0**22
    assert got[1] == 0 and bound(inputs)[1] >= 2.0**-10, (
        "a block has one scale: 2^-12 beside 2^20 is less than its step"
    )


@pytest.mark.parametrize("bad", [math.inf, -math.inf, math.nan])
def test_a_block_with_no_number_in_it_is_none_everywhere(sums: Sums, bad: float) -> None:
    inputs = [np.ones(200, dtype=np.float32) for _ in range(RANKS)]
    inputs[2][70] = bad
    for got in sums(inputs):
        assert np.all(np.isnan(got[64:128])), "the block that it is in, whole"
        assert np.all(got[:64] == RANKS) and np.all(got[128:] == RANKS), "and no other"


def test_extremes(sums: Sums) -> None:
    largest, smallest = np.finfo(np.float32).max, 2.0**-149
    over = sums([np.array([largest], dtype=np.float32)] * RANKS)[0]
    assert over[0] == math.inf, "what float32 cannot hold is infinite, as from any adder"
    mean = sums([np.array([largest], dtype=np.float32)] * RANKS, op="avg")[0]
    assert abs(float(mean[0]) / float(largest) - 1) < 2.0**-23
    tiny = sums([np.array([smallest, 0, -smallest], dtype=np.float32)] * RANKS)[0]
    assert list(tiny) == [4 * smallest, 0, -4 * smallest]


@pytest.mark.parametrize(("dtype", "digits"), [("float16", 11), ("bfloat16", 8)])
def test_sums_of_short_types_are_rounded_once(sums: Sums, dtype: str, digits: int) -> None:
    """To nearest even, and not to float32 before: that loses on which side of the middle of two numbers a sum is."""
    random = np.random.default_rng(digits)
    numbers = 1 + np.arange(100) % 2 ** (digits - 1) * 2.0 ** (1 - digits)
    beside = random.integers(-1, 2, 100) * 2.0**-24  # what float32 has no digit for
    parts = [numbers, np.full(100, 2.0**-digits), beside, np.zeros(100)]  # every sum is at the middle, or beside it
    mantissa, exponent = np.frexp(np.sum(parts, axis=0))
    once = np.ldexp(np.rint(np.ldexp(mantissa, digits)), exponent - digits)
    short = data.element(dtype)
    for got in sums([part.astype(short).view(np.uint16) for part in parts], dtype=dtype):
        assert np.array_equal(got.view(short).astype(np.float64), once)


def test_int32_wraps_as_int32_does(sums: Sums) -> None:
    inputs = [np.array([2**31 - 1, -5, 7, -8], dtype=np.int32), *[np.array([1, 2, 3, -1], dtype=np.int32)] * 3]
    assert list(sums(inputs, dtype="int32")[0]) == [-(2**31) + 2, 1, 16, -11]
    assert list(sums(inputs, op="min", dtype="int32")[1]) == [1, -5, 3, -8]
    assert list(sums(inputs, op="max", dtype="int32")[2]) == [2**31 - 1, 2, 7, -1]
    assert list(sums(inputs, op="avg", dtype="int32")[3]) == [-536870911, 0, 4, -2], "truncated towards zero"


@pytest.mark.parametrize(("op", "ufunc"), [("band", np.bitwise_and), ("bor", np.bitwise_or), ("bxor", np.bitwise_xor)])
def test_bits_of_integers(sums: Sums, op: str, ufunc: np.ufunc) -> None:
    random = np.random.default_rng(7)
    for dtype, bits in (("int32", np.int32), ("int8", np.int8), ("uint8", np.uint8)):
        its = np.iinfo(bits)
        inputs = [random.integers(its.min, its.max, 200, dtype=bits, endpoint=True) for _ in range(RANKS)]
        assert (sums(inputs, op=op, dtype=dtype)[1] == ufunc.reduce(inputs)).all()


@FEW
@given(
    st.lists(st.lists(st.floats(width=32, allow_nan=False), min_size=70, max_size=70), min_size=RANKS, max_size=RANKS),
    st.sampled_from(["min", "max"]),
    st.integers(0, RANKS - 1),
)
def test_the_least_and_the_largest_are_exact(sums: Sums, drawn: list[list[float]], op: str, who: int) -> None:
    """Of numbers of any size in one block, infinities too; -0 is below 0, and what is no number wins, as in numpy."""
    inputs = [np.array(one, dtype=np.float32) for one in drawn]
    inputs[0][0], inputs[1][0], inputs[2][0], inputs[3][0] = -0.0, 0.0, 0.0, -0.0
    inputs[who][69] = math.nan
    got = sums(inputs, op=op)[who]
    assert np.array_equal(got, getattr(np, f"{op}imum" if op == "max" else "minimum").reduce(inputs), equal_nan=True)
    assert math.isnan(got[69]) and np.signbit(got[0]) == (op == "min")


@pytest.mark.parametrize("count", [1, 63, 203, 512])
def test_sums_that_not_all_want(sums: Sums, count: int) -> None:
    """As MPI_Reduce and MPI_Reduce_scatter give them; a block of 64 that lies in one part alone goes to nobody else."""
    random = np.random.default_rng(count)
    inputs = [random.integers(-(2**31), 2**31, count, dtype=np.int32) for _ in range(RANKS)]
    whole = np.sum(inputs, axis=0, dtype=np.int32)
    untouched = np.full(4 * count, UNTOUCHED, dtype=np.uint8).view(np.int32)
    first, *others = sums(inputs, dtype="int32", wanted=TO_ONE)
    assert (first == whole).all() and all((other == untouched).all() for other in others)
    scattered = sums(inputs, dtype="int32", wanted=IN_PARTS)
    for got, own in zip(scattered, np.array_split(np.arange(count), RANKS), strict=True):
        assert (got[own] == whole[own]).all()
        if count == 512:
            assert (np.delete(got, own) == np.delete(untouched, own)).all()


def test_nobody_is_through_a_barrier_before_the_last_has_come(sums: Sums) -> None:
    def met(rank: int) -> float:
        device = sums.devices[rank]
        group, source, target = device.made  # type: ignore[attr-defined]
        start = device.sync(1, RANKS)
        device.spend(50_000 if rank == 3 else 0)
        group.post(source, 0, target, 0, 1)
        device.wait()
        return device.time_ns - start

    times = sums.in_parallel(met)
    assert min(times) > 50_000 and max(times) < 60_000, times


def test_who_leaves_gives_the_slots_back() -> None:
    with offload_fabric("{star: {hosts: 3}}", "{slots: 24}") as lab:

        def work(device: Device) -> list[tuple[int, str]]:
            seen = []
            for tag in range(5):
                group = device.group("aggregate", tag, range(3), ARGS)
                other = device.group("aggregate", 100 + tag, range(3), ARGS)
                third = device.group("aggregate", 200 + tag, range(3), ARGS)
                seen += [(g.granted, g.refused) for g in (group, other, third)]
                for g in (group, other, third):
                    g.leave()
                device.sync(tag, 3)
            device.wait(until_ns=device.time_ns + 1000)  # a LEAVE acts when a post would
            return seen

        seen = on_ranks(lab, range(3), work)
        refused = (0, "sw0's accelerator has no slot free of 24")
        assert seen[0] == seen[1] == seen[2] == [(16, ""), (8, ""), refused] * 5
        (pool,) = lab.fabricd.request("counters")["accelerators"]
        assert (pool["slots_free"], pool["slots_used_max"]) == (24, 24)
