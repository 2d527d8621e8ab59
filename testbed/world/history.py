"""Snapshots of counters at a fixed period of emulated time, kept in memory."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, overload

Counters = dict[str, Any]
PERIOD_NS = 50_000
KEPT_BYTES = 256 << 20
NOT_EMULATED = ("fences", "forwarding_wall_ns", "fast_hops", "fast_checked", "fast_stale", "tables_changed")
"""Of `fidelity`: matters of wall time, or of which way frames went."""


def emulated(counters: Mapping[str, Any]) -> Counters:
    """The counters that follow from what has happened in emulated time."""
    kept = {key: value for key, value in counters.items() if key not in ("id", "fidelity")}
    fidelity = counters.get("fidelity", {})
    return kept | {"fidelity": {key: value for key, value in fidelity.items() if key not in NOT_EMULATED}}


class History(Sequence[tuple[int, Counters]]):
    """(time_ns, counters), oldest first; each is unpacked when it is looked at. The oldest go when there are many."""

    def __init__(self) -> None:
        self._kept: list[tuple[int, bytes]] = []
        self._bytes = 0

    def add(self, time_ns: int, counters: Mapping[str, Any]) -> None:
        packed = zlib.compress(json.dumps(counters).encode(), 1)
        self._kept.append((time_ns, packed))
        self._bytes += len(packed)
        while self._bytes > KEPT_BYTES and len(self._kept) > 1:
            self._bytes -= len(self._kept.pop(0)[1])

    @property
    def times(self) -> list[int]:
        return [time_ns for time_ns, _ in self._kept]

    def __len__(self) -> int:
        return len(self._kept)

    @overload
    def __getitem__(self, index: int) -> tuple[int, Counters]: ...
    @overload
    def __getitem__(self, index: slice) -> list[tuple[int, Counters]]: ...
    def __getitem__(self, index: int | slice) -> tuple[int, Counters] | list[tuple[int, Counters]]:
        if isinstance(index, slice):
            return [_unpacked(one) for one in self._kept[index]]
        return _unpacked(self._kept[index])

    def __iter__(self) -> Iterator[tuple[int, Counters]]:
        return (_unpacked(one) for one in self._kept)

    def at(self, time_ns: float) -> tuple[int, Counters] | None:
        """The last one that is not later; None if there is none."""
        found = [one for one in self._kept if one[0] <= time_ns]
        return _unpacked(found[-1]) if found else None


def _unpacked(one: tuple[int, bytes]) -> tuple[int, Counters]:
    return one[0], json.loads(zlib.decompress(one[1]))
