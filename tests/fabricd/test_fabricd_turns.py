"""Ranks whose schedules go on in C wait for fabricd there; their figures are those of ranks that do it in Python."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from unittest import mock

from tests.parts import task_graphs
from tests.parts.fabricd_fixture import FAST, BareFabric, bare_fabric, plain
from tests.parts.fake_run import Line, collective, plan
from tests.parts.in_c import graph
from workloads import worker
from workloads.base import native
from workloads.verbs import Device

RANKS = 4


def lines(told: Line, *, in_c: bool) -> list[Line]:
    """What ranks say, by rank."""
    found = native.turns if in_c else lambda: None
    said: dict[int, list[Line]] = {rank: [] for rank in range(RANKS)}

    def rank_main(f: BareFabric, rank: int) -> None:
        with Device(str(f.worker_socket(rank)), wake_ns=told["costs"]["wake_ns"]) as device:
            worker.run({**told, "rank": rank}, device, said[rank].append)

    with (
        mock.patch.object(native, "turns", found),
        ThreadPoolExecutor(RANKS) as pool,
        bare_fabric("star", {"hosts": RANKS}, binary=plain(), sample=FAST) as f,
    ):
        f.start(*range(RANKS))
        for done in [pool.submit(rank_main, f, rank) for rank in range(RANKS)]:
            done.result()
    return [line for rank in range(RANKS) for line in said[rank] if line["kind"] != "progress"]


def test_collectives_take_the_same() -> None:
    """Of every kind of reduction: on the host, on streams of their own, and where C does not know the type."""
    steps = [
        collective("all_reduce", [40_000, 400], algorithm="ring", iterations=2),
        collective("all_reduce", [200_000], algorithm="double_binary_tree", chunk=8192, dtype="bfloat16"),
        collective("all_reduce", [4000], algorithm="halving_doubling", dtype="float16", op="max"),
        collective("all_to_all", [40_000], algorithm="pairwise"),
    ]
    told = plan(RANKS, *steps, reduce_bps=8e9, wake_ns=300.0)
    in_c = lines(told, in_c=True)
    assert in_c == lines(told, in_c=False)
    assert not any(line["wrong"] for line in in_c)


def test_tasks_take_the_same() -> None:
    told = plan(RANKS, task_graphs.step(graph(), iterations=2), reduce_bps=8e9, by_channel=True)
    in_c = lines(told, in_c=True)
    assert in_c == lines(told, in_c=False)
    assert not any(line.get("wrong") for line in in_c)
