"""Ring and star as SVG: nodes on a circle, or hosts around their switch."""

from __future__ import annotations

from math import cos, pi, sin

from .draw_canvas import HOST, SOFT, Canvas, Look, Point, hue, nic_tip, switch_tip, tint
from .draw_common import missing, shown
from .fabric import Fabric

SWITCH_SIZE: Point = (62, 28)
HOST_SIZE: Point = (70, 36)
MOST = 40  # on a circle
BLUE = Look.solid(hue(0))


def draw_ring(fabric: Fabric, canvas: Canvas) -> None:
    count = len(fabric.switches)
    row = shown(count, MOST)
    radius = max(104.0, len(row) * 88 / (2 * pi))
    inner = _circle(len(row), radius)
    # Boxes are wider than high: hosts at the sides need more distance.
    outer = [(x * (1 + 92 / radius), y * (1 + 64 / radius)) for x, y in inner]
    for i, node in enumerate(row):
        if node is None:
            _gap(canvas, inner, i, radius, f"… {missing(count, row)} more nodes")
            continue
        switch, nic = fabric.switches[node], fabric.nics[node]
        canvas.line((inner[i], outer[i]), tint(SOFT, 0.35), cable=fabric.cable_by_name[f"{nic.name}-{switch.name}"])
        canvas.node(inner[i], SWITCH_SIZE, switch.name, BLUE, tip=switch_tip(switch))
        canvas.node(outer[i], HOST_SIZE, nic.name, HOST, sub=str(nic.ip), tip=nic_tip(nic))
        j = (i + 1) % len(row)
        after = row[j]
        if after is None or (count == 2 and i == 1):
            continue
        cable = fabric.cable_by_name[f"{switch.name}-{fabric.switches[after].name}"]
        if count == 2:
            canvas.line((inner[0], inner[1]), hue(0), cable=cable)
        else:
            canvas.arc(inner[i], inner[j], radius, hue(0), cable=cable)


def draw_star(fabric: Fabric, canvas: Canvas) -> None:
    count = len(fabric.nics)
    row = shown(count, MOST)
    radius = max(130.0, len(row) * 84 / (2 * pi))
    switch = fabric.switches[0]
    for at, i in zip(_circle(len(row), radius), row, strict=True):
        if i is None:
            canvas.note((at[0], at[1] + 4), f"… {missing(count, row)} more")
            continue
        nic = fabric.nics[i]
        canvas.line(((0, 0), at), tint(hue(0), 0.35), cable=fabric.cable_by_name[f"{nic.name}-{switch.name}"])
        canvas.node(at, HOST_SIZE, nic.name, HOST, sub=str(nic.ip), tip=nic_tip(nic))
    canvas.node((0, 0), (76, 40), switch.name, BLUE, sub="10.0.0.0/16", tip=switch_tip(switch))


def _circle(count: int, radius: float) -> list[Point]:
    """Points clockwise from the top; two lie side by side."""
    start = pi if count == 2 else -pi / 2
    angles = [start + 2 * pi * i / count for i in range(count)]
    return [(radius * cos(a), radius * sin(a)) for a in angles]


def _gap(canvas: Canvas, circle: list[Point], i: int, radius: float, text: str) -> None:
    """A dotted piece of the circle where nodes are left out."""
    before, at, after = circle[i - 1], circle[i], circle[(i + 1) % len(circle)]
    canvas.arc(before, after, radius, tint(hue(0), 0.3), dash=True)
    canvas.note((at[0] * 1.12, at[1] * 1.12), text, anchor="end")
