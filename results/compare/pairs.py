"""Draws that belong together: points of the same seed.

A seed decides what is drawn, so two sides at the same seed have met the same draws, and their difference has nothing of
the spread between seeds. So only seeds that both have are compared, as pairs; what one side alone has is left out, or
its draws would count as a difference between the sides.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from results.compare.side import Point
from results.figures.draws import REPLICATE
from results.figures.keys import hashable, value_at


def seed(point: Point) -> Any:
    """Of a point's experiment."""
    return value_at(point.experiment, REPLICATE)


def paired(sides: Sequence[Sequence[Point]]) -> list[list[Point]]:
    """Of each side its points at the seeds that it shares with the first side, and all others of that kind.

    A side keeps all of its points if it shares no seed with the first, or has one twice: then nothing belongs together.
    """
    seeds = [[hashable(seed(point)) for point in points] for points in sides]
    alike = [n for n, of in enumerate(seeds) if len(set(of)) == len(of) and set(of) & set(seeds[0])]
    if len(alike) < 2 or 0 not in alike:
        return [list(points) for points in sides]
    common = set.intersection(*(set(seeds[n]) for n in alike))
    if not common:  # each shares some with the first, but not the same
        return [list(points) for points in sides]
    return [
        [point for point, its in zip(points, seeds[n], strict=True) if its in common] if n in alike else list(points)
        for n, points in enumerate(sides)
    ]
