"""Nodes on a circle."""

from __future__ import annotations

from math import cos, pi, sin

from topologies.drawing.tools.canvas import Look, Point, hue

HOST_SIZE: Point = (70, 36)
MOST = 40  # on a circle
BLUE = Look.solid(hue(0))


def circle(count: int, radius: float) -> list[Point]:
    """Points clockwise from the top; two lie side by side."""
    start = pi if count == 2 else -pi / 2
    angles = [start + 2 * pi * i / count for i in range(count)]
    return [(radius * cos(a), radius * sin(a)) for a in angles]
