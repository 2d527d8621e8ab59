"""Torus: as text planes of a grid; as SVG the whole, every dimension in its colour.

There, the last dimension runs right, the one before it down, the third into the page; further ones repeat the whole,
rightwards and downwards in turn.  With one dimension it is drawn as a ring.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product

from topologies.drawing import ring
from topologies.drawing.tools.canvas import (
    HOST,
    SOFT,
    SWITCH,
    Canvas,
    Point,
    hue,
    nic_tip,
    switch_tip,
    text_width,
    tint,
)
from topologies.drawing.tools.common import shown
from topologies.drawing.tools.lines import addresses, gap, wired
from topologies.graph.fabric import Cable, Fabric
from topologies.kinds import dimensions
from topologies.kinds.torus import step

HIGH = 26  # a switch
CHIP: Point = (48, 20)  # a host
DOWN = 92  # from row to row, where nothing else needs room
DEEP = 60  # up, for one step into the page
Place = tuple[int, ...]


def title(fabric: Fabric) -> str:
    p = fabric.params
    return "torus: " + " × ".join(map(str, p["dims"])) + (", direct" if p["direct"] else "")


def as_lines(fabric: Fabric, width: int) -> Iterator[str]:
    dims = dimensions(fabric)
    if len(dims) == 1:
        yield from ring.as_lines(fabric, width)
        return
    planes = list(product(*map(range, dims[:-2])))
    picked = shown(len(planes), 8)
    for i in picked:
        if i is None:
            yield f"{gap(len(planes), picked)} planes"
        else:
            yield from _plane(fabric, dims, planes[i], width)
        yield ""
    wraps = ", ".join(str(axis) for axis, size in enumerate(dims) if size > 2)
    yield "the last dimension runs right, the one before it down" + (
        ", and each place in the others is a plane" if dims[2:] else ""
    )
    if wraps:
        yield f"the last node is cabled to the first along dimensions {wraps} (the first is 0)"
    yield addresses(fabric)


def _plane(fabric: Fabric, dims: tuple[int, ...], at: tuple[int, ...], width: int) -> Iterator[str]:
    host = {s.name: n.name for s, n in zip(fabric.switches, fabric.nics, strict=True)}
    switches = {s.place: s.name for s in fabric.switches}
    cell = max(len(f"{switch} {nic}") for switch, nic in host.items())
    columns, rows = shown(dims[-1], max(4, width // (cell + 4))), shown(dims[-2], 16)
    stems = " " * (cell // 2)
    for y in rows:
        if y is None:
            yield stems + gap(dims[-2], rows)
            continue
        if y:
            yield "    ".join((stems + ("┊" if x is None else "│")).ljust(cell) for x in columns)
        names = ["…" if x is None else switches[*at, y, x] for x in columns]
        yield wired([f"{n} {host[n]}" if n in host else n for n in names], cell)


def draw(fabric: Fabric, canvas: Canvas) -> None:
    dims = dimensions(fabric)
    if len(dims) == 1:
        ring.draw(fabric, canvas)
        return
    wide = max(text_width(s.name, 12) for s in fabric.switches) + 16
    steps = _steps(dims, wide + 58)
    names = {s.place: s.name for s in fabric.switches}
    at = {place: _sum(steps, place) for place in product(*map(range, dims))}
    for around in (True, False):  # wrap-around cables lie under the others
        for axis, size in enumerate(dims):
            for place, here in at.items():
                if around == (place[axis] == size - 1) and (size > 2 or place[axis] == 0):
                    other = step(place, axis, 1, dims)
                    cable = fabric.cable_by_name[f"{names[place]}-{names[other]}"]
                    _cable(canvas, cable, here, at[other], len(dims) - 1 - axis, around, wide)
    for (x, y), switch, nic in zip(at.values(), fabric.switches, fabric.nics, strict=True):
        chip = (x + wide / 2 + 5, y + HIGH)
        cable = fabric.cable_by_name[f"{nic.name}-{switch.name}"]
        canvas.line(((x, y), chip), tint(SOFT, 0.35), cable=cable, width=1.6)
        canvas.node(chip, CHIP, nic.name, HOST, tip=nic_tip(nic))
        canvas.node((x, y), (wide, HIGH), switch.name, SWITCH, tip=switch_tip(switch))


def _steps(dims: Place, pitch: float) -> list[Point]:
    """How far one step along each dimension moves on the page; no two switches come to lie on each other.

    `pitch` is from switch to switch in a row of a plain grid.
    """
    aside = pitch / 2 + 8  # for one step into the page: past the host of the switch in front
    depth = dims[-3] - 1 if len(dims) > 2 else 0
    right, down = pitch + depth * aside, DOWN + depth * DEEP
    steps: list[Point] = [(right, 0), (0, down), (aside, -DEEP)]
    width = dims[-1] * right + depth * aside + 60
    height = (dims[-2] if len(dims) > 1 else 1) * down + depth * DEEP + 60
    for k, size in enumerate(reversed(dims[:-3])):
        if k % 2 == 0:
            steps.append((width, 0))
            width = width * size + 60
        else:
            steps.append((0, height))
            height = height * size + 60
    return steps[: len(dims)][::-1]


def _sum(steps: Sequence[Point], place: Place) -> Point:
    pairs = list(zip(steps, place, strict=True))
    return sum(s[0] * c for s, c in pairs), sum(s[1] * c for s, c in pairs)


def _cable(canvas: Canvas, cable: Cable, a: Point, b: Point, level: int, around: bool, wide: float) -> None:
    """From a to its upper neighbour b along a dimension: level 0 runs right, 1 down, 2 into the page."""
    colour = hue(level) if not around else tint(hue(level), 0.5)
    if level > 2:
        canvas.bow(a, b, 60 if around else 30, tint(hue(level), 0.45), cable=cable, width=1.3)
    elif not around:
        canvas.line((a, b), colour, cable=cable)
    elif level == 2:
        canvas.bow(a, b, -26, colour, cable=cable, width=1.5)
    else:
        canvas.line(_loop(a, b, level, wide), colour, cable=cable, width=1.5, radius=14)


def _loop(last: Point, first: Point, level: int, wide: float) -> list[Point]:
    """From the end of a row over its top back to its start; of a column, along its left."""
    (x, y), (x0, y0) = last, first
    if level == 0:
        over, out = y - 28, wide / 2 + 22
        return [last, (x + out, y), (x + out, over), (x0 - out, over), (x0 - out, y), first]
    beside, out = x - wide / 2 - 12, HIGH / 2 + 25
    return [last, (x, y + out), (beside, y + out), (beside, y0 - out), (x, y0 - out), first]
