"""The same scenario gives the same times and counters, byte for byte, however busy the machine is."""

from __future__ import annotations

import contextlib
import json
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from hardware.config import Hardware
from tests.parts.fabricd_fixture import BareFabric, RawWorker, bare_fabric, post_recv, post_send
from workloads.verbs import wire

NOT_EMULATED = ("fences", "forwarding_wall_ns", "fast_hops", "fast_checked", "fast_stale", "tables_changed",
                "windows")  # fmt: skip
"""Matters of wall time, or of which way frames went."""
SAMPLES = (1024, 0, 1, 7)
"""Of the fast path, run by run."""


@contextlib.contextmanager
def both_cores_loaded() -> Iterator[None]:
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(2)]
    try:
        yield
    finally:
        for process in busy:
            process.kill()
            process.wait()


def drive(f: BareFabric, script: Callable[[int, RawWorker, list[int], int], Iterator[tuple[int, list[bytes]]]]) -> Any:
    """Each rank's script yields what to wait for and what to post.  Returns what every rank saw, and counters.

    Ranks are answered as they come: which is read first is left to the machine.
    """
    import selectors

    n = len(f.fabric.nics)
    f.start(*range(n))
    workers = [f.worker(i) for i in range(n)]
    keys = [w.region(1 << 20)[0] for w in workers]
    seen: list[Any] = [[] for _ in workers]
    scripts = [script(i, w, seen[i], keys[i]) for i, w in enumerate(workers)]
    with selectors.DefaultSelector() as waiting:
        for i, w in enumerate(workers):
            records, commands = next(scripts[i])
            w.begin_wait(records, wire.FOREVER, *commands)
            waiting.register(w.socket, selectors.EVENT_READ, i)
        while waiting.get_map():
            ready = [key.data for key, _ in waiting.select(20)]
            assert ready, "nothing happens any more"
            random.shuffle(ready)
            for i in ready:
                w = workers[i]
                seen[i].append([w.time_ps, *(w.end_wait())])
                try:
                    records, commands = next(scripts[i])
                except StopIteration:
                    waiting.unregister(w.socket)
                    w.bye()
                else:
                    w.begin_wait(records, wire.FOREVER, *commands)
    end = f.fabricd.request("quiesce")["time_ns"]
    counters = f.counters()
    for key in NOT_EMULATED:
        counters["fidelity"].pop(key, None)
    counters.pop("id")
    return json.dumps([end, seen, counters], default=repr)


def connects(ranks: list[int], rank: int) -> list[bytes]:
    return [wire.command(wire.CONNECT, r, 1, r, 0, 0, 0, 0) for r in ranks if r != rank]


def exchange(n: int, rounds: int, size: int, seed: int) -> Any:
    """All to all, in rounds of posts of many sizes, with SYNCs, computing and waits for part of what is under way."""

    def script(rank: int, w: RawWorker, seen: list[Any], key: int) -> Iterator[tuple[int, list[bytes]]]:
        dice = random.Random(seed * 1000 + rank)
        yield n - 1, connects(list(range(n)), rank)
        qps = {r.wr_id: r.qp for r in seen[-1][1:]}
        for i in range(rounds):
            commands = [post_recv(qp, key, 0, wr_id=peer) for peer, qp in qps.items()]
            yield 1, [*commands, wire.command(wire.SYNC, i, n)]
            commands = []
            for peer, qp in dice.sample(sorted(qps.items()), len(qps)):
                length = dice.choice([0, 1, 100, 4096, size])
                commands.append(post_send(qp, key, 1, length, opcode=wire.WRITE_IMM, wr_id=peer))
                commands.append(wire.command(wire.SPEND, dice.randrange(500_000)))
            commands.append(wire.command(wire.COMPUTE, i, dice.randrange(3_000_000), 0, 0))
            left = 2 * (n - 1) + 1
            while left > 0:
                yield min(left, dice.randrange(1, 4)), commands
                commands = []
                left -= len(seen[-1]) - 1

    return script


def incast(n: int, rounds: int, size: int) -> Any:
    """Everybody posts to rank 0 at one time, over and over: as many events of the same time as can be."""

    def script(rank: int, w: RawWorker, seen: list[Any], key: int) -> Iterator[tuple[int, list[bytes]]]:
        peers = list(range(1, n)) if rank == 0 else [0]
        yield len(peers), connects(peers, rank)
        qps = [r.qp for r in seen[-1][1:]]
        for i in range(rounds):
            yield 1, [wire.command(wire.SYNC, i, n)]
            yield len(qps), [post_send(qp, key, 1, size, wr_id=i) for qp in qps]

    return script


SCENARIOS = {
    "all to all": ("star", {"hosts": 5}, Hardware(), exchange(5, 6, 20_000, 1)),
    "all to all over a tiny buffer": (
        "star",
        {"hosts": 4},
        Hardware(mtu=1024, switch_buffer_bytes=5000, timeout_ns=20_000, retry=200, rnr_timeout_ns=1000),
        exchange(4, 4, 10_000, 2),
    ),
    "rails and scale-up": ("rail", {"servers": 3, "gpus": 2, "spines": 1}, Hardware(), exchange(6, 3, 9000, 3)),
    "no latency anywhere": (
        "star",
        {"hosts": 4},
        Hardware(cable_delay_ns=0, switch_latency_ns=0, pcie_latency_ns=0, post_ns=0),
        exchange(4, 3, 9000, 4),
    ),
    "symmetric incast": ("star", {"hosts": 9}, Hardware(), incast(9, 4, 16_384)),
    "symmetric incast with losses": (
        "clos",
        {"leaves": 3, "spines": 1, "hosts_per_leaf": 3},
        Hardware(switch_buffer_bytes=30_000, timeout_ns=30_000, retry=200),
        incast(9, 3, 16_384),
    ),
}


@pytest.mark.parametrize("name", SCENARIOS)
def test_same_figures_every_time(name: str) -> None:
    kind, params, hardware, script = SCENARIOS[name]
    results = []
    for i, sample in enumerate(SAMPLES):
        with (
            both_cores_loaded() if i % 2 else contextlib.nullcontext(),
            bare_fabric(kind, params, hardware, sample=sample) as f,
        ):
            results.append(drive(f, script))
    if "tiny" in name or "losses" in name:
        assert '"reason": "tail"' in results[0]
    for other in results[1:]:
        assert other == results[0]


def test_a_flow_gets_its_queue_pairs_behind_those_that_workers_make_by_then() -> None:
    """Whoever is slower to say so: the numbers decide on paths."""
    with bare_fabric("star", {"hosts": 2}) as f:
        f.fabricd.request("inject", fault="t", primitive="traffic", flows=[[0, 1, 4096, 0]])
        f.start(0, 1)
        workers = [f.worker(rank) for rank in (0, 1)]
        f.counters()
        pair = f.connect(*workers)
        generated = [q["qp"] for q in f.counters()["qps"] if q["generated"]]
        assert generated and min(generated) > max(pair.qp_a, pair.qp_b)
        pair.done()


def test_as_many_flows_as_a_fault_may_have_are_one_request() -> None:
    flows = [[0, 1, 100_000_000, 1_000_000_000 + k] for k in range(100_000)]
    with bare_fabric("star", {"hosts": 2}) as f:
        f.fabricd.request("inject", fault="t", primitive="traffic", flows=flows)
        (fault,) = f.counters()["faults"]
        assert fault["fault"] == "t"
