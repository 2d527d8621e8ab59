"""Ranks of a bare fabric by scripts, answered as they come: what they see, and all that was counted."""

from __future__ import annotations

import json
import random
import selectors
from collections.abc import Callable, Iterator
from typing import Any

from tests.parts.fabricd_fixture import BareFabric, RawWorker, post_recv, post_send
from workloads.verbs import wire

NOT_EMULATED = ("fences", "forwarding_wall_ns", "fast_hops", "fast_checked", "fast_stale", "tables_changed",
                "windows")  # fmt: skip
"""Matters of wall time, or of which way frames went."""


def drive(f: BareFabric, script: Callable[[int, RawWorker, list[int], int], Iterator[tuple[int, list[bytes]]]]) -> Any:
    """Each rank's script yields what to wait for and what to post.  Returns what every rank saw, and counters.

    Ranks are answered as they come: which is read first is left to the machine.
    """
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
