"""How fast each flow of a step is while all of them are under way: from the courses that senders have kept.

A flow that is done late has had what others left to it, so its mean rate says little of how it shares. While all are
there it is from the last one's start to the first one's end; between the points of its course a flow is taken to go on
evenly.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from typing import Any


def with_rates(steps: Sequence[Mapping[str, Any]], lines: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The steps, each that was watched with `together`: flow -> bytes per second while all are there."""
    courses: dict[int, dict[int, Mapping[str, Any]]] = defaultdict(dict)
    for line in lines:
        if line.get("kind") == "flow" and line.get("course"):
            courses[line["step"]][line["flow"]] = line
    return [
        step | {"together": _rates(its)} if (its := courses.get(number)) and len(its) == len(step["senders"]) else step
        for number, step in enumerate(map(dict, steps))
    ]


def _rates(lines: Mapping[int, Mapping[str, Any]]) -> dict[int, float]:
    """Nothing, if they are never all there."""
    begin = max(Fraction(line["start_ns"]) for line in lines.values())
    end = min(Fraction(line["end_ns"]) for line in lines.values())
    if end <= begin:
        return {}
    return {
        number: float((_bytes(line, end) - _bytes(line, begin)) * 10**9 / (end - begin))
        for number, line in lines.items()
    }


def _bytes(line: Mapping[str, Any], at_ns: Fraction) -> Fraction:
    """How much of a flow has come by then."""
    start = Fraction(line["start_ns"])
    points: list[tuple[int, Fraction]] = [
        (0, start),
        *((came, start + Fraction(after)) for came, after in line["course"]),
    ]
    k = bisect_right([at for _, at in points], at_ns)
    if k == len(points):
        return Fraction(points[-1][0])
    (before, since), (after, until) = points[k - 1], points[k]
    return before + (after - before) * (at_ns - since) / (until - since)
