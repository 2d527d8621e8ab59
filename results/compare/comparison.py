"""Runs or sweeps side by side: the first is the baseline, the others have ratios against it.

Points of sweeps that have the same values of the swept keys are compared, all seeds of a point together. A single run
is compared with the points that its own values name.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from statistics import fmean
from typing import Any

from results.compare.counters import Moved, moved
from results.compare.differences import differences
from results.compare.interval import LEVEL, Interval, interval
from results.compare.pairs import paired, seed
from results.compare.side import Point, Side
from results.figures import in_force
from results.figures.draws import REPLICATE
from results.figures.keys import hashable, raw
from results.figures.summary import RARE
from results.store.folder import StoreError
from results.store.load import Run

Values = tuple[Any, ...]
MEAN_OVER_SIZES = "busbw_GBps"


def ratio(first: float, other: float) -> float:
    """Of nothing to nothing 1, of something to nothing infinite."""
    if first == 0:
        return 1.0 if other == 0 else math.inf
    return other / first


@dataclass(frozen=True)
class Figure:
    """One figure at one point: of each side the values over the seeds that are compared, in their order, and those
    seeds; `dropped`: its other seeds (pairs.py)."""

    at: dict[str, Any]  # the values of the swept keys
    name: str
    values: tuple[tuple[float, ...], ...]
    seeds: tuple[tuple[Any, ...], ...]
    dropped: tuple[tuple[Any, ...], ...]

    def mean(self, side: int) -> float | None:
        """Over the seeds; None if that side does not have it."""
        return fmean(self.values[side]) if self.values[side] else None

    def ratio(self, side: int) -> float | None:
        """Against the first side: of nothing to nothing 1."""
        first, other = self.mean(0), self.mean(side)
        if first is None or other is None or math.isnan(first) or math.isnan(other):
            return None
        return ratio(first, other)

    def interval(self, side: int) -> Interval | None:
        """Of that ratio; None with too few seeds."""
        return interval(self.values[0], self.values[side], paired=self.paired(side))

    def paired(self, side: int) -> bool:
        """Whether its values and those of the first side are pairs: of the same seeds, each once."""
        return self.seeds[0] == self.seeds[side] and len(set(map(hashable, self.seeds[0]))) == len(self.seeds[0])

    def to_dict(self) -> dict[str, Any]:
        """As `testbed compare --json` has it."""
        others = [self._against(side) for side in range(1, len(self.values))]
        means = [_finite(self.mean(side)) for side in range(len(self.values))]
        seeds = {"seeds": list(map(len, self.values)), "dropped_seeds": list(map(list, self.dropped))}
        return {"at": self.at, "figure": self.name, **seeds, "mean": means, "against_first": others}

    def _against(self, side: int) -> dict[str, Any]:
        data: dict[str, Any] = {"ratio": _finite(self.ratio(side)), "paired": self.paired(side)}
        if interval := self.interval(side):
            key = "ratio_interval" if interval.ratio else "difference_interval"
            data |= {key: [_finite(interval.low), _finite(interval.high)], "stands_out": interval.stands_out}
        return data


class Comparison:
    """`sides`, what differs between them, and figures of the points that they share."""

    def __init__(self, sides: Sequence[Side]) -> None:
        self.sides = tuple(sides)
        self.keys = tuple(dict.fromkeys(key for side in sides for key in side.swept if _ends(key) != REPLICATE))

    @cached_property
    def differing(self) -> dict[str, list[Any]]:
        """The keys in which the experiments differ, by path, with the value of each side; and what was in force on
        live fabrics, a key for each fault and action."""
        swept = [key for key in (*self.keys, REPLICATE) if any(key in side.swept for side in self.sides)]
        of_live = differences([in_force.keys(side.live) for side in self.sides])
        return differences([side.experiment for side in self.sides], swept) | of_live

    @cached_property
    def points(self) -> list[tuple[dict[str, Any], list[list[Point]]]]:
        """What the sides share: values of the swept keys, and each side's points there, by seed."""
        groups = [self._by_values(side) for side in self.sides]
        shared = [key for key in groups[0] if all(key in group for group in groups)]
        return [(self._at(key), [group[key] for group in groups]) for key in shared]

    @cached_property
    def left_out(self) -> list[tuple[int, dict[str, Any]]]:
        """Points that not every side has: the number of the side that has it, and its values."""
        groups = [self._by_values(side) for side in self.sides]
        return [
            (side, self._at(key))
            for side, group in enumerate(groups)
            for key in group
            if not all(key in other for other in groups)
        ]

    @cached_property
    def figures(self) -> list[Figure]:
        """Every figure of every shared point; those that `unlike` has are no figures of the same thing."""
        return [figure for at, sides in self.points for figure in _figures(at, _good(sides))]

    @cached_property
    def unlike(self) -> dict[str, list[list[int]]]:
        """Means over sizes that are not the same on all sides, by name, with the sizes of each side."""
        return {name: sizes for _, sides in self.points for name, sizes in _unlike(_good(sides)).items()}

    @cached_property
    def counters(self) -> list[Moved]:
        """Counters that moved, over the runs of `_runs`; none if the sides have different numbers of them."""
        if not self.same_numbers:
            return []
        runs = [[run for of in self._runs for run in of[side]] for side in range(len(self.sides))]
        return moved(runs) if all(runs) else []

    @cached_property
    def same_numbers(self) -> bool:
        """Whether every side has as many runs at each shared point: sums over them mean the same."""
        return all(len(runs) == len(sides[0]) for sides in self._runs for runs in sides)

    @cached_property
    def _runs(self) -> list[list[list[Run]]]:
        """Of each shared point each side's runs that have ended well, of the seeds that are compared."""
        pairs = (paired(_good(sides)) for _, sides in self.points)
        found = [[[point.run for point in points if point.run is not None] for points in sides] for sides in pairs]
        return [sides for sides in found if all(sides)]

    @property
    def same(self) -> bool:
        """Whether everything measured is the same, to the byte: every hash, in its order."""
        first = self.sides[0].hashes
        return bool(first) and None not in first and all(side.hashes == first for side in self.sides)

    def to_dict(self) -> dict[str, Any]:
        """As `testbed compare --json` prints it."""
        sides = [
            {"name": s.name, "run": str(s.path), "points": len(s.points), "failed": len(s.states),
             "fidelity": s.verdicts} for s in self.sides
        ]  # fmt: skip
        return {
            "sides": sides,
            "same": self.same,
            "level": LEVEL,
            "differing": self.differing,
            "figures": [figure.to_dict() for figure in self.figures],
            "counters": [counter.to_dict() for counter in self.counters],
            "left_out": [{"side": self.sides[side].name, "at": at} for side, at in self.left_out],
        }

    def _by_values(self, side: Side) -> dict[Values, list[Point]]:
        groups: dict[Values, list[Point]] = {}
        for point in side.points:
            groups.setdefault(tuple(hashable(v) for v in point.at(self.keys)), []).append(point)
        return {values: sorted(points, key=_by_seed) for values, points in groups.items()}

    def _at(self, values: Values) -> dict[str, Any]:
        return {key: raw(value) for key, value in zip(self.keys, values, strict=True)}


def compare(runs: Sequence[str | Path]) -> Comparison:
    """The first of the runs or sweeps against the others. Raises StoreError for what is none."""
    if len(runs) < 2:
        hint = "name two runs or sweeps, or more"
        raise StoreError("there is nothing to compare with", " ".join(map(str, runs)), hint)
    return Comparison([Side.of(run) for run in runs])


def _ends(key: str) -> str:
    return key.partition(",")[0].strip()


def _by_seed(point: Point) -> float:
    value = seed(point)
    return float(value) if isinstance(value, int | float) else math.inf


def _good(sides: Sequence[Sequence[Point]]) -> list[list[Point]]:
    """Those that have ended well. A total that only some of them have is 0 in the others."""
    good = [[point for point in points if not point.error] for points in sides]
    none = {name: 0 for name in RARE if any(name in point.figures for points in good for point in points)}
    return [[replace(point, figures={**none, **point.figures}) for point in points] for points in good]


def _figures(at: dict[str, Any], sides: Sequence[Sequence[Point]]) -> Iterator[Figure]:
    unlike = _unlike(sides)
    names = dict.fromkeys(k for points in sides for p in points for k, v in p.figures.items() if _number(v))
    for name in names:
        if name in unlike:
            continue
        have = [[point for point in points if _number(point.figures.get(name))] for points in sides]
        compared = paired(have)
        values = tuple(tuple(float(point.figures[name]) for point in points) for points in compared)
        seeds = tuple(tuple(map(seed, points)) for points in compared)
        used = {id(point) for points in compared for point in points}
        dropped = tuple(tuple(seed(point) for point in points if id(point) not in used) for points in have)
        yield Figure(at, name, values, seeds, dropped)


def _unlike(sides: Sequence[Sequence[Point]]) -> dict[str, list[list[int]]]:
    """Means over different sizes cannot be compared."""
    names = {k for points in sides for p in points for k in p.figures if k.startswith(MEAN_OVER_SIZES)}
    found = {name: [{size for p in points for size in _sizes(p, name)} for points in sides] for name in sorted(names)}
    return {
        name: [sorted(of) for of in sizes]
        for name, sizes in found.items()
        if len({_sizes(p, name) for points in sides for p in points}) > 1
    }


def _sizes(point: Point, mean: str) -> frozenset[int]:
    """Of the figures by size that belong to that mean: those of the same algorithm."""
    suffix = mean.removeprefix(MEAN_OVER_SIZES)
    by_size = (name.removeprefix("time_us_") for name in point.figures if name.startswith("time_us_"))
    found = (size.removesuffix(suffix) if suffix else size for size in by_size if size.endswith(suffix))
    return frozenset(int(size) for size in found if size.isdecimal())


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _finite(value: float | None) -> float | None:
    """JSON has no infinity, and no not-a-number."""
    return value if value is not None and math.isfinite(value) else None
