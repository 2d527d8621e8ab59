"""Rows that are held back, predicted, and scored by size: errors, and whether the bars cover them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import exp, log
from statistics import median

from testbed.base.errors import InputError
from testbed.base.units import UnitError, format_size, parse_size
from testbed.calibrate.measured import Measured
from testbed.cluster.bars import Bar, Bars
from testbed.cluster.model import NAMES
from testbed.cluster.profile import Z90
from testbed.cluster.regions import REGIONS, region
from testbed.logs.row import Point, named

Mark = tuple[float, float]
MARKS: dict[str, tuple[Mark, Mark]] = {
    "above": ((0.05, 0.20), (0.08, 0.25)),
    "to 64MiB": ((0.10, 0.25), (0.15, 0.35)),
    "to 1MiB": ((0.20, 0.45), (0.25, 0.50)),
    "below 64KiB": ((0.12, 0.30), (0.15, 0.35)),
}
"""Median and worst error that are good, for other collectives and GPUs of a node, and for up to 4 times the nodes."""
COVERED = (0.80, 0.98)

Test = Callable[[Point], bool]


@dataclass(frozen=True)
class Predicted:
    """A point that was not fitted."""

    one: Measured
    time_ns: float
    bar: Bar
    choice: str

    @property
    def error(self) -> float:
        """Of the prediction, as a share of what was measured."""
        return self.time_ns / self.one.time_ns - 1

    @property
    def covered(self) -> bool:
        return abs(log(self.time_ns / self.one.time_ns)) <= Z90 * self.bar.sd

    @property
    def text(self) -> str:
        point = self.one.point
        return (
            f"{point.collective} {point.nodes} x {point.gpus} {format_size(point.size_bytes)}: "
            f"{self.one.time_ns / 1e3:.1f} us, predicted {self.time_ns / 1e3:.1f} us ({100 * self.error:+.1f} %, "
            f"bar {self.bar.percent:.0f} %)"
        )


@dataclass(frozen=True)
class Score:
    """Of a region.  `marks`: median and worst that are good."""

    name: str
    points: int
    median: float
    worst: float
    marks: Mark

    @property
    def met(self) -> bool:
        return self.median <= self.marks[0] and self.worst <= self.marks[1]


def predicted(bars: Bars, points: Sequence[Measured]) -> list[Predicted]:
    """Of points of which there is a model."""
    values = {name: exp(x) for name, x in zip(NAMES, bars.x, strict=True)}
    return [_predicted(bars, one, values) for one in points]


def _predicted(bars: Bars, one: Measured, values: Mapping[str, float]) -> Predicted:
    choice = bars.model.choice(one.point)
    by = f"{choice.algorithm}/{choice.protocol}, {choice.channels} channels"
    return Predicted(one, float(bars.model.times(one.point, values, choice)), bars.at(one.point), by)


def scores(found: Sequence[Predicted], *, more_nodes: bool) -> list[Score]:
    """By region, the largest sizes first."""
    made = []
    for name in reversed(REGIONS):
        errors = [abs(one.error) for one in found if region(one.one.point.size_bytes) == name]
        if errors:
            made.append(Score(name, len(errors), median(errors), max(errors), MARKS[name][more_nodes]))
    return made


def holding(text: str) -> Test:
    """`all_reduce,nodes=8`: which points are held back: those of all conditions.  Raises InputError."""
    tests = [_condition(part.strip()) for part in text.split(",") if part.strip()]
    if not tests:
        raise InputError("nothing is named", "--hold", _HINT)
    return lambda point: all(test(point) for test in tests)


_HINT = "collectives, nodes=8, gpus=1, size>=1GiB, size<64KiB; several, with commas, hold together"


def _condition(text: str) -> Test:
    if name := named(text):
        return lambda point: point.collective == name
    if not (found := re.fullmatch(r"(nodes|gpus|size)\s*(=|<=|>=|<|>)\s*(\S+)", text)):
        raise InputError(f"{text!r:.60} is no condition", "--hold", _HINT)
    key, sign, number = found.groups()
    try:
        value = parse_size(number) if key == "size" and not number.isdecimal() else int(number)
    except (UnitError, ValueError):
        raise InputError(f"{number!r:.40} is no number", "--hold", _HINT) from None
    compare: dict[str, Callable[[int], bool]] = {
        "=": lambda n: n == value, "<": lambda n: n < value, ">": lambda n: n > value,
        "<=": lambda n: n <= value, ">=": lambda n: n >= value,
    }  # fmt: skip
    attribute = "size_bytes" if key == "size" else key
    return lambda point: compare[sign](getattr(point, attribute))
