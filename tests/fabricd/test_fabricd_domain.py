"""Sums and copies in the switch of a scale-up domain: results, what each link carries, groups that cannot be."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from hardware.config import Hardware
from tests.parts.fabricd_fixture import BareFabric, bare_fabric
from workloads.parts.context import Context, HostCosts
from workloads.parts.part import Part
from workloads.registry import find
from workloads.verbs import Device, wire

GPUS, MTU = 3, 1024
SIZE = 3 * 5 * MTU + 3 * 40  # of each part five whole blocks, and one of 40 bytes
RAIL = ("rail", {"servers": 2, "gpus": GPUS})


def at_once(f: BareFabric, work: Callable[[int], Any]) -> list[Any]:
    f.start(*range(GPUS))
    with ThreadPoolExecutor(GPUS) as pool:
        return list(pool.map(work, range(GPUS)))


Case = tuple[str, str, str | None, tuple[int, ...]]


def carried_out(f: BareFabric, cases: Sequence[Case]) -> list[list[int]]:
    """Wrong elements at each rank, case by case."""

    def one(device: Device, number: int, case: Case) -> int:
        collective, dtype, op, sizes = case
        entry = find(collective, "nvls")
        context = Context(device, 1, HostCosts(), max(sizes))
        part: Part = entry.load()(context, entry, range(GPUS), dtype, op, 100 * number)
        wrong = 0
        for variant, size in enumerate(sizes, 1):
            part.prepare(size, variant)
            device.sync(100 * number + variant, GPUS)
            part.run()
            assert not part.fallback
            wrong += part.finish()
        part.close()
        return wrong

    def work(rank: int) -> list[int]:
        with Device(str(f.worker_socket(rank))) as device:
            return [one(device, number, case) for number, case in enumerate(cases, 1)]

    return at_once(f, work)


def carried(f: BareFabric, rank: int) -> tuple[int, int]:
    """Bytes out of a GPU into its domain, and into it."""
    (port,) = (p for p in f.counters()["ports"] if (p["node"], p["port"]) == (f.fabric.nics[rank].name, 2))
    return port["tx_bytes"], port["rx_bytes"]


def frames(payload: int) -> int:
    """Bytes of so much payload in packets, with headers, FCS and ours: 14 + 20 + 8 + 12 + 24 + 4 + 4."""
    return payload + 86 * -(-payload // MTU)


def test_each_link_carries_what_is_counted() -> None:
    """Parts each way, and small frames: one that says that the rank is there, of all three ranks; and loads."""
    counted = {
        # its shares of three parts, the sums of its own, six loads; its sums, the copies of all, the loads of all
        "all_reduce": ((4, 1 + 6), (4, 3 + 18)),
        "reduce_scatter": ((3, 1 + 6), (1, 3 + 18)),
        "all_gather": ((1, 1), (3, 3)),
    }
    with bare_fabric(*RAIL, Hardware(mtu=MTU)) as f:
        cases = [(name, "float32", None if name == "all_gather" else "sum", (SIZE,)) for name in counted]
        assert carried_out(f, cases) == [[0] * 3] * GPUS
        for rank in range(GPUS):
            each = [[parts * frames(SIZE // GPUS) + 86 * small for parts, small in way] for way in counted.values()]
            assert carried(f, rank) == tuple(map(sum, zip(*each, strict=True)))
        assert carried(f, GPUS) == (0, 0)


def test_results_of_all_kinds() -> None:
    """Of vectors of which some rank has no part, too, one after the other, with more blocks than loads at a time."""
    cases: list[Case] = [
        (*kind, (4, 8, 3 * 150 * MTU + 4, SIZE))
        for kind in (
            ("all_reduce", "bfloat16", "avg"), ("all_reduce", "uint8", "bxor"), ("all_reduce", "float32", "max"),
            ("reduce_scatter", "float16", "min"), ("broadcast", "int32", None), ("all_gather", "float8_e5m2", None),
        )
    ]  # fmt: skip
    with bare_fabric(*RAIL, Hardware(mtu=MTU)) as f:
        assert carried_out(f, cases) == [[0] * len(cases)] * GPUS


def test_half_numbers_are_added_up_in_float32() -> None:
    """2048 + 1 + 1 in float16: adding in float16 would stay at 2048 twice (ties to even); added in float32, 2050."""
    terms = (2048.0, 1.0, 1.0)

    def work(f: BareFabric, rank: int) -> float:
        with Device(str(f.worker_socket(rank))) as device:
            group, region = device.group("domain", 1, range(GPUS), ()), device.region(4096)
            region.view("float16", 0, 8)[:] = terms[rank]
            group.post(region, 0, region, 2048, 8, collective=3, reduction="sum", dtype="float16")
            while not any(record.kind == wire.OFFLOADED for record in device.wait()):
                pass
            group.leave()
            return float(region.view("float16", 2048, 8)[7])

    with bare_fabric(*RAIL) as f:
        assert at_once(f, lambda rank: work(f, rank)) == [2050.0] * GPUS


def test_ranks_of_two_domains_get_no_group() -> None:
    def work(f: BareFabric, rank: int) -> str:
        with Device(str(f.worker_socket(rank))) as device:
            return device.group("domain", 1, (2, 3), ()).refused

    with bare_fabric(*RAIL) as f:
        f.start(2, 3)
        with ThreadPoolExecutor(2) as pool:
            assert set(pool.map(lambda rank: work(f, rank), (2, 3))) == {"its ranks are not in one scale-up domain"}
