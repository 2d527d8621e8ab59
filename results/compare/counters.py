"""Counters that moved: sums over all places, and the place that moved most."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from typing import Any

from hardware.tables import entries
from results.frames.columns import COLUMNS, GROWS, MOST
from results.store.load import Run

_PLACES = {
    "ports": ("node", "port"),
    "priorities": ("node", "port", "priority"),
    "nics": ("nic",),
    "switches": ("switch",),
    "accelerators": ("switch",),
    "drops": ("node", "port", "reason"),
    "faults": ("fault",),
}
"""The frames that hold counters, and what a row of each is about."""


@dataclass(frozen=True)
class Moved:
    """A counter of each side; `place` is where it moved most, with the values there."""

    frame: str
    name: str
    unit: str
    values: tuple[int, ...]
    place: str
    there: tuple[int, ...]

    @property
    def share(self) -> float:
        """How far the others are from the first side, at most: 1 where one of both is 0."""
        first, *others = self.values
        return max((abs(v - first) / max(v, first) for v in others if v != first), default=0.0)

    def to_dict(self) -> dict[str, Any]:
        """As `testbed compare --json` has it."""
        own = {"counter": f"{self.frame}.{self.name}", "unit": self.unit, "values": list(self.values)}
        return {**own, "place": self.place, "there": list(self.there)}


def names(frame: str) -> list[str]:
    """The counters of a frame; of drops they are the reasons."""
    if frame == "drops":
        return [name for _, name, _ in entries("link/drops.def")]
    return list(_sorts(frame)) if frame in _PLACES else []


def every_name() -> list[str]:
    """FRAME.NAME of each counter."""
    return [f"{frame}.{name}" for frame in _PLACES for name in names(frame)]


def _sorts(frame: str) -> dict[str, str]:
    """What each counter of a frame is: GROWS or MOST."""
    return {column.name: column.sort for column in COLUMNS.get(frame, ()) if column.sort in (GROWS, MOST)}


def moved(sides: Sequence[Sequence[Run]]) -> list[Moved]:
    """The counters that are not the same on all sides, those that moved most first. Each side is one or more runs."""
    every: list[Moved | None] = []
    for frame, place in _PLACES.items():
        tables = [_by_place(runs, frame, place) for runs in sides]
        if frame == "drops":
            every += _drops(tables)
            continue
        units = {column.name: column.unit for column in COLUMNS[frame]}
        every += [_counter(frame, name, units[name], name, tables) for name in names(frame)]
    return sorted(filter(None, every), key=lambda counter: -counter.share)


Table = dict[tuple[Any, ...], dict[str, int]]


def _by_place(runs: Sequence[Run], frame: str, place: Sequence[str]) -> Table:
    table: Table = defaultdict(lambda: defaultdict(int))
    sorts = _sorts(frame)
    for run in runs:
        for row in run.rows(frame):
            mine = table[tuple(row.get(k) for k in place)]
            for name, sort in sorts.items():
                mine[name] = _joined(sort, mine[name], row.get(name) or 0)
    return table


def _joined(sort: str, one: int, other: int) -> int:
    """Over several places or runs."""
    return max(one, other) if sort == MOST else one + other


def _drops(tables: Sequence[Table]) -> Iterator[Moved | None]:
    """A counter for each reason."""
    for reason in dict.fromkeys(place[-1] for table in tables for place in table):
        of_reason = [{p[:-1]: row for p, row in table.items() if p[-1] == reason} for table in tables]
        yield _counter("drops", "count", "frames", str(reason), of_reason)


def _counter(frame: str, column: str, unit: str, name: str, tables: Sequence[Mapping[Any, Any]]) -> Moved | None:
    joined = partial(_joined, _sorts(frame)[column])
    totals = [reduce(joined, (row.get(column, 0) for row in table.values()), 0) for table in tables]
    places = dict.fromkeys(place for table in tables for place in table)
    there = {p: tuple(table.get(p, {}).get(column, 0) for table in tables) for p in places}
    most = max(there, key=lambda p: max(there[p]) - min(there[p]), default=None)
    if most is None or max(there[most]) == min(there[most]):
        return None
    return Moved(frame, name, unit, tuple(totals), ":".join(map(str, most)), there[most])
