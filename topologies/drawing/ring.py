"""Ring: as text a loop, folded in two rows; as SVG nodes on a circle, their hosts outside of it."""

from __future__ import annotations

from collections.abc import Iterator
from math import pi

from topologies.drawing.tools.canvas import HOST, SOFT, Canvas, Point, hue, nic_tip, switch_tip, tint
from topologies.drawing.tools.circle import BLUE, HOST_SIZE, MOST, circle
from topologies.drawing.tools.common import missing, shown
from topologies.drawing.tools.lines import addresses, wired
from topologies.graph.fabric import Fabric

SWITCH_SIZE: Point = (62, 28)


def title(fabric: Fabric) -> str:
    p = fabric.params
    return f"ring: {p['nodes']} nodes" + (", direct" if p["direct"] else "")


def as_lines(fabric: Fabric, width: int) -> Iterator[str]:
    """Folded in two rows; with two nodes there is one cable and nothing to fold."""
    count = len(fabric.nics)
    names = [f"{s.name} {n.name}" for s, n in zip(fabric.switches, fabric.nics, strict=True)]
    if count == 2:
        yield " ── ".join(names)
    else:
        row = shown(count, max(4, 2 * ((width - 6) // (max(map(len, names)) + 4))))
        texts = [f"… {missing(count, row)} more" if i is None else names[i] for i in row]
        upper, lower = texts[: (len(texts) + 1) // 2], texts[(len(texts) + 1) // 2 :][::-1]
        cell = max(map(len, texts))
        over, under = wired(upper, cell), wired(lower, cell)
        length = max(len(over), len(under))
        # An odd ring's lower row is one short: its last cable is that much longer.
        yield f"┌─ {over} ".ljust(length + 4, "─") + "─┐"
        yield f"└─ {under} ".ljust(length + 4, "─") + "─┘"
    yield ""
    yield addresses(fabric)


def draw(fabric: Fabric, canvas: Canvas) -> None:
    count = len(fabric.switches)
    row = shown(count, MOST)
    radius = max(104.0, len(row) * 88 / (2 * pi))
    inner = circle(len(row), radius)
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


def _gap(canvas: Canvas, places: list[Point], i: int, radius: float, text: str) -> None:
    """A dotted piece of the circle where nodes are left out."""
    before, at, after = places[i - 1], places[i], places[(i + 1) % len(places)]
    canvas.arc(before, after, radius, tint(hue(0), 0.3), dash=True)
    canvas.note((at[0] * 1.12, at[1] * 1.12), text, anchor="end")
