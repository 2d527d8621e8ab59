"""Rings as a library carries them out take, to the nanosecond, what follows from their mechanisms (CALIBRATE's closed
forms): a slice passes its channel's clock, the NIC, the network, and is seen later by what the library adds."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, replace
from itertools import product
from typing import TypeVar

import pytest

from tests.parts.fabricd_fixture import BareFabric, bare_fabric
from workloads.base.entry import Algorithm
from workloads.collectives.manner import Manner
from workloads.parts.context import Context, HostCosts
from workloads.registry import by_library, find
from workloads.times.messages import Costs, Path, received_ns
from workloads.verbs import Device

LAUNCH, BYTE, SLICE, FAR, POST = 5000.0, 0.08, 700.0, 6000.0, 100.0
T = TypeVar("T")
STAR = Path.uniform(1, rate_bps=400e9, delay_ns=500.0, latency_ns=500.0)


def took(f: BareFabric, rank: int, ranks: int, collective: str, size: int, manner: Manner) -> float:
    """What the rank's part takes, checked."""
    with Device(str(f.worker_socket(rank))) as device:
        told = {"library": asdict(manner), "sizes": [size]}
        context = Context(device, 1, HostCosts(reduce_bps=1e9), size, options=told)
        entry = find(collective, "nccl_ring")
        part = entry.load()(context, entry, range(ranks), "float32", "sum" if entry.ops else None, 1)
        part.prepare(size, 0)
        begin = device.sync(1, ranks)
        part.run()
        ended = device.time_ns
        assert part.finish() == 0
        part.close()
        return ended - begin


def longest(ranks: int, collective: str, size: int, **more: object) -> float:
    manner = Manner(4, 1, 1, 1, "simple", False, True, 2 << 20, 2, 32 << 10, 4, LAUNCH, BYTE, SLICE, 0.0, FAR, 1.0)
    manner = Manner(**{**asdict(manner), **more})
    return max(by_ranks(ranks, lambda f, rank: took(f, rank, ranks, collective, size, manner)))


def by_ranks(ranks: int, part: Callable[[BareFabric, int], T]) -> list[T]:
    """What each has found; a rank that fails ends the fabric, and so the others that wait for it, with its reason."""
    with ThreadPoolExecutor(ranks) as pool, bare_fabric("star", {"hosts": ranks}) as f:
        f.start(*range(ranks))
        parts = [pool.submit(part, f, rank) for rank in range(ranks)]
        for done in as_completed(parts):
            done.result()
        return [done.result() for done in parts]


def test_all_of_them_end_with_the_right_data() -> None:
    """Whatever goes through another GPU's NIC, in whichever protocol."""
    manner = Manner(4, 2, 2, 4, "simple", False, True, 8192, 2, 512, 4, LAUNCH, BYTE, SLICE, 50.0, FAR, 1.0, 2)
    padded = replace(manner, protocol="ll128", padded=128 / 120, slices=1)
    entries = [find(collective, name) for collective, names in by_library().items() for name in names]
    wrong = by_ranks(4, lambda f, rank: _wrong(f, rank, entries, [manner, padded]))
    assert wrong == [[0] * (2 * len(entries))] * 4


def _wrong(f: BareFabric, rank: int, entries: list[Algorithm], manners: list[Manner]) -> list[int]:
    """Elements of each, one after the other."""
    found, size = [], 48 << 10
    with Device(str(f.worker_socket(rank))) as device:
        for number, (entry, manner) in enumerate(product(entries, manners)):
            told = {"library": asdict(manner), "sizes": [size]}
            context = Context(device, 1, HostCosts(), size, options=told)
            part = entry.load()(context, entry, range(4), "float32", "sum" if entry.ops else None, (number + 1) << 12)
            part.prepare(size, 0)
            device.sync(number + 1, 4)
            part.run()
            found.append(part.finish())
            part.close()
    return found


def hop_ns(nbytes: int) -> float:
    return POST + received_ns(nbytes, STAR, Costs()) + FAR


def test_one_hop_of_one_slice() -> None:
    """L0 + s/C + t_s + t_m + s/(B e) + t_i."""
    s = 16 << 10
    assert longest(2, "all_gather", 2 * s) == pytest.approx(LAUNCH + s * BYTE + SLICE + hop_ns(s), abs=1.0)


def test_flags_of_ll_go_over_the_wire() -> None:
    """Half of what is sent is data."""
    s = 16 << 10
    found = longest(2, "all_gather", 2 * s, protocol="ll", chunk=32 << 10, slices=1, least=1, slots=8, padded=2.0)
    assert found == pytest.approx(LAUNCH + s * BYTE + SLICE + hop_ns(2 * s), abs=1.0)


@pytest.mark.parametrize("n", [3, 5])
def test_all_gather_of_one_loop(n: int) -> None:
    """L0 + 2p + h + (n-2) max(2p, p + h), with two slices to a chunk."""
    s = 64 << 10
    p, h = s * BYTE + SLICE, hop_ns(s)
    assert longest(n, "all_gather", 2 * s * n) == pytest.approx(
        LAUNCH + 2 * p + h + (n - 2) * max(2 * p, p + h), abs=1.0
    )


def test_what_is_added_up_passes_the_clock_once() -> None:
    """The host's own speed of adding up (8 us for a byte here) has no part in it."""
    s, n = 64 << 10, 3
    p, h = s * BYTE + SLICE, hop_ns(s)
    found = longest(n, "reduce_scatter", 2 * s * n)
    assert found == pytest.approx(LAUNCH + 2 * p + h + (n - 2) * max(2 * p, p + h) + p, abs=1.0)
