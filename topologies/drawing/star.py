"""Star: hosts around their switch."""

from __future__ import annotations

from collections.abc import Iterator
from math import pi

from topologies.drawing.tools.canvas import HOST, Canvas, hue, nic_tip, switch_tip, tint
from topologies.drawing.tools.circle import BLUE, HOST_SIZE, MOST, circle
from topologies.drawing.tools.common import missing, plural, shown
from topologies.drawing.tools.lines import flow
from topologies.graph.fabric import Fabric


def title(fabric: Fabric) -> str:
    links = fabric.params["links"]
    several = f", {links} ports each" if links > 1 else ""
    return f"star: {plural(len(fabric.hosts), 'host')}{several}"


def as_lines(fabric: Fabric, width: int) -> Iterator[str]:
    yield fabric.switches[0].name
    lines = list(flow([f"{n.name} {n.ip}" for n in fabric.nics], width - 2))
    for i, line in enumerate(lines):
        yield f"{'└' if i == len(lines) - 1 else '├'} {line}"


def draw(fabric: Fabric, canvas: Canvas) -> None:
    count = len(fabric.nics)
    row = shown(count, MOST)
    radius = max(130.0, len(row) * 84 / (2 * pi))
    switch = fabric.switches[0]
    for at, i in zip(circle(len(row), radius), row, strict=True):
        if i is None:
            canvas.note((at[0], at[1] + 4), f"… {missing(count, row)} more")
            continue
        nic = fabric.nics[i]
        canvas.line(((0, 0), at), tint(hue(0), 0.35), cable=fabric.cable_by_name[f"{nic.name}-{switch.name}"])
        canvas.node(at, HOST_SIZE, nic.name, HOST, sub=str(nic.ip), tip=nic_tip(nic))
    canvas.node((0, 0), (76, 40), switch.name, BLUE, sub="10.0.0.0/16", tip=switch_tip(switch))
