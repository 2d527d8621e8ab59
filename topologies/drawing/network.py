"""Networks without a shape of their own: a list of switches as text, and as SVG hosts below tiers of switches.

A tier is the switches at one distance from the hosts.  Bridges in NICs are drawn as part of their hosts.
"""

from __future__ import annotations

from collections.abc import Iterator

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
from topologies.drawing.tools.common import missing, plural, shown
from topologies.graph.fabric import EMBEDDED, Cable, Fabric

MOST_LINES = 60
MOST_IN_A_TIER = 24
PITCH, TIER = 104, 96


def title(fabric: Fabric) -> str:
    return f"{fabric.kind}: {plural(len(fabric.hosts), 'host')}"


def as_lines(fabric: Fabric, width: int) -> Iterator[str]:
    """One line for each switch (and each host that is cabled to hosts), with the ends of its cables."""
    owner = _owners(fabric)
    listed = [s.name for s in fabric.switches if s.role not in EMBEDDED]
    listed += [bridge for bridge in owner if any(far in owner for far in _beside(fabric, bridge))]
    label = max(len(owner.get(name, name)) for name in listed)
    address = {nic.name: str(nic.ip) for nic in fabric.nics}
    row = shown(len(listed), MOST_LINES)
    for i in row:
        if i is None:
            yield f"┊ … {missing(len(listed), row)} more"
            continue
        name = listed[i]
        ends = [owner.get(far, far) for far in _beside(fabric, name)]
        texts = [f"{end} {address[end]}" if end in address else end for end in ends]
        for k, line in enumerate(_wrapped(texts, width - label - 3)):
            yield f"{owner.get(name, name) if k == 0 else '':{label}} {'─' if k == 0 else ' '} {line}"


def _wrapped(texts: list[str], width: int) -> Iterator[str]:
    line = ""
    for text in texts:
        if line and len(line) + 3 + len(text) > width:
            yield line
            line = ""
        line = f"{line}   {text}" if line else text
    yield line


def draw(fabric: Fabric, canvas: Canvas) -> None:
    owner = _owners(fabric)
    at: dict[str, Point] = {}
    for number, tier in enumerate(_tiers(fabric, owner)):
        row = shown(len(tier), MOST_IN_A_TIER)
        for k, i in enumerate(row):
            here: Point = ((k - (len(row) - 1) / 2) * PITCH, -number * TIER)
            if i is None:
                canvas.note((here[0], here[1] + 4), f"… {missing(len(tier), row)} more")
            else:
                at[tier[i]] = here
    for k, cable in enumerate(fabric.cables):
        ends = [owner.get(end.node, end.node) for end in (cable.a, cable.b)]
        if cable.name not in fabric.inside and ends[0] in at and ends[1] in at:
            _cable(canvas, cable, at[ends[0]], at[ends[1]], k)
    for name, here in at.items():
        if name in fabric.nic_by_name:
            nic = fabric.nic_by_name[name]
            canvas.node(here, (84, 36), name, HOST, sub=str(nic.ip), tip=nic_tip(nic))
        else:
            switch = fabric.switch_by_name[name]
            canvas.node(here, (max(84, text_width(name, 12) + 16), 34), name, SWITCH, tip=switch_tip(switch))


def _cable(canvas: Canvas, cable: Cable, a: Point, b: Point, number: int) -> None:
    colour = tint(hue(number % 8), 0.25) if a[1] and b[1] else tint(SOFT, 0.35)
    if a[1] != b[1]:
        canvas.curve(a, b, colour, cable=cable, width=1.8)
    elif abs(a[0] - b[0]) <= PITCH:
        canvas.line((a, b), colour, cable=cable, width=1.8)
    else:  # over or under the nodes between
        left, right = sorted((a, b))
        canvas.bow(left, right, 40 if a[1] else -40, colour, cable=cable, width=1.8)


def _owners(fabric: Fabric) -> dict[str, str]:
    """The NIC that a bridge is in."""
    bridges = ((fabric.bridge_of(nic.name), nic.name) for nic in fabric.nics)
    return {bridge.name: name for bridge, name in bridges if bridge is not None}


def _beside(fabric: Fabric, switch: str) -> list[str]:
    """The nodes at a switch's ports, in their order; without a bridge's own host."""
    ports = range(1, fabric.switch_by_name[switch].ports + 1)
    cables = (fabric.cable_at[switch, port] for port in ports)
    return [cable.other(switch).node for cable in cables if cable.name not in fabric.inside]


def _tiers(fabric: Fabric, owner: dict[str, str]) -> list[list[str]]:
    """The hosts, then the switches one cable away from them, two cables, .."""
    tiers = [[nic.name for nic in fabric.nics]]
    found = set(tiers[0])
    front = [cable.other(nic).node for nic in tiers[0] for cable in [fabric.cable_at[nic, 1]]]
    front = [far for end in front for far in (_beside(fabric, end) if end in owner else [end])]
    while front:
        tier = [s for s in dict.fromkeys(front) if s not in found and s not in owner and s in fabric.switch_by_name]
        if tier:
            tier.sort(key=lambda name: fabric.switch_by_name[name].index)
            tiers.append(tier)
        found |= set(tier)
        front = [far for s in tier for far in _beside(fabric, s)]
    return tiers
