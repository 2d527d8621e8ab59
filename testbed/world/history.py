"""Snapshots of counters at a fixed period of emulated time, kept in memory."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, overload

Counters = dict[str, Any]
PERIOD_NS = 50_000
MANY = 400
"""After so many each further doubling of the time takes half as many again: the period doubles."""
KEPT_BYTES = 256 << 20
NOT_EMULATED = ("fences", "forwarding_wall_ns", "fast_hops", "fast_checked", "fast_stale", "tables_changed",
                "events", "windows")  # fmt: skip
"""Of `fidelity`: matters of wall time, of which way frames went, of how far partitions ran, of how a program's threads
wake each other."""


def next_ns(time_ns: int) -> int:
    """When the next snapshot is due."""
    period = PERIOD_NS
    while time_ns >= MANY * period:
        period *= 2
    return (time_ns // period + 1) * period


def emulated(counters: Mapping[str, Any]) -> Counters:
    """The counters that follow from what has happened in emulated time."""
    kept = {key: value for key, value in counters.items() if key not in ("id", "fidelity")}
    fidelity = counters.get("fidelity", {})
    return kept | {"fidelity": {key: value for key, value in fidelity.items() if key not in NOT_EMULATED}}


class Snapshots(Sequence[tuple[int, Counters]]):
    """(time_ns, counters), oldest first: `count` of them, of which `one` makes each when it is looked at."""

    def __init__(self, count: int, one: Callable[[int], tuple[int, Counters]]) -> None:
        self._count, self._one = count, one

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, index: int) -> tuple[int, Counters]: ...
    @overload
    def __getitem__(self, index: slice) -> list[tuple[int, Counters]]: ...
    def __getitem__(self, index: int | slice) -> tuple[int, Counters] | list[tuple[int, Counters]]:
        which = range(len(self))[index]
        return self._one(which) if isinstance(which, int) else [self._one(k) for k in which]


class History(Snapshots):
    """They are kept packed. The oldest go when there are many."""

    def __init__(self) -> None:
        self._kept: list[tuple[int, bytes]] = []
        self._bytes = 0
        super().__init__(0, lambda k: (self._kept[k][0], json.loads(zlib.decompress(self._kept[k][1]))))

    def __len__(self) -> int:
        return len(self._kept)

    def add(self, time_ns: int, counters: Mapping[str, Any]) -> None:
        packed = zlib.compress(json.dumps(counters).encode(), 1)
        self._kept.append((time_ns, packed))
        self._bytes += len(packed)
        while self._bytes > KEPT_BYTES and len(self._kept) > 1:
            self._bytes -= len(self._kept.pop(0)[1])
