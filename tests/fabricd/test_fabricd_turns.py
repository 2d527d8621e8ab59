"""Ranks whose schedules go on in C wait for fabricd there; their figures are those of ranks that do it in Python."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from unittest import mock

import pytest

from hardware.config import Hardware
from tests.parts import task_graphs
from tests.parts.fabricd_fixture import DEADLINE_S, DEFAULTS, FAST, BareFabric, bare_fabric, plain
from tests.parts.fake_run import Line, collective, plan
from tests.parts.in_c import graph
from tests.parts.traffic_fabric import nic, switch
from workloads import worker
from workloads.base import native
from workloads.parts import turns
from workloads.parts.context import Context, HostCosts
from workloads.registry import ALGORITHMS, find
from workloads.verbs import Device

RANKS = 4
ANY_ORDER = Hardware(
    switch=switch(headroom=0, lossless=[], alpha=64),
    nic={**nic(), "recovery": "selective_repeat", "lossless": [], "ordering": "any", "sack_bits": 64, "sack_every": 16},
)


def lines(told: Line, *, in_c: bool, beforehand: bool = True, overtake: bool = False) -> list[Line]:
    """What ranks say, by rank.  With `beforehand` C says some of it beforehand; messages may `overtake` others."""
    found = native.turns if in_c else lambda: None
    said: dict[int, list[Line]] = {rank: [] for rank in range(RANKS)}
    chains = [0] * RANKS

    def rank_main(f: BareFabric, rank: int) -> None:
        with Device(str(f.worker_socket(rank)), wake_ns=told["costs"]["wake_ns"]) as device:
            worker.run({**told, "rank": rank}, device, said[rank].append)
            chains[rank] = device.turns._state.chains if isinstance(device.turns, turns.Turns) else 0

    with (
        mock.patch.object(native, "turns", found),
        mock.patch.object(turns, "FORESEES", beforehand),
        ThreadPoolExecutor(RANKS) as pool,
        bare_fabric("star", {"hosts": RANKS}, ANY_ORDER if overtake else DEFAULTS, binary=plain(), sample=FAST) as f,
    ):
        if overtake:
            late: dict[str, Any] = {
                "primitive": "frames",
                "effect": "delay",
                "delay_ns": 3000,
                "jitter_ns": 2000,
                "reorder": True,
            }
            f.fabricd.request("inject", fault="late", ports=["h1:1", "h2:1"], select={"every": 3}, **late)
        f.start(*range(RANKS))
        for done in [pool.submit(rank_main, f, rank) for rank in range(RANKS)]:
            done.result()
    assert all(chains) == (in_c and beforehand) and any(chains) == all(chains)
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


@pytest.mark.parametrize(("wake_ns", "overtake"), [(700.0, False), (0.0, True)])
def test_what_is_said_beforehand_changes_no_figure(wake_ns: float, overtake: bool) -> None:
    """Of any schedule, alone and several at a time, whether messages overtake each other or not."""
    grid = {"dims": [2, 2], "senders": 2, "skew": 1.0}
    scheduled = [e for e in ALGORITHMS.values() if e.schedule and e.max_ranks is None and not e.lengths]
    fits = [e for e in scheduled if e.fits(RANKS, [2, 2] if e.layout in ("grid", "rails") else ())]
    steps = [
        collective(e.collective.name, [30_000] if e.collective.sized else [0], algorithm=e.name, **grid) for e in fits
    ]
    steps += [task_graphs.step(graph(), iterations=2)]
    told = plan(RANKS, *steps, reduce_bps=8e9, by_channel=True, wake_ns=wake_ns)
    with_it = lines(told, in_c=True, overtake=overtake)
    assert with_it == lines(told, in_c=True, beforehand=False, overtake=overtake)
    assert not any(line.get("wrong") for line in with_it)


def test_a_signal_is_heard_while_a_rank_waits() -> None:
    """Its peer goes on when it has been heard, and not before: whom a rank waits for is asked by a signal."""
    heard = threading.Event()

    def rank_main(f: BareFabric, rank: int, before: Callable[[], object]) -> int:
        with Device(str(f.worker_socket(rank))) as device:
            entry = find("all_reduce", "ring")
            part = entry.load()(Context(device, 1, HostCosts(), 800), entry, range(2), "float32", "sum", 1)
            part.prepare(800, 0)
            device.sync(1, 2)
            before()
            part.run()
            return int(part.finish())

    with (
        ThreadPoolExecutor(1) as pool,
        bare_fabric("star", {"hosts": 2}, binary=plain(), sample=FAST) as f,
    ):
        f.start(0, 1)
        other = pool.submit(rank_main, f, 1, lambda: heard.wait(DEADLINE_S))
        was = signal.signal(signal.SIGALRM, lambda *_: heard.set())
        try:
            assert rank_main(f, 0, lambda: signal.setitimer(signal.ITIMER_REAL, 0.2)) == 0
        finally:
            signal.signal(signal.SIGALRM, was)
        assert heard.is_set() and other.result() == 0
