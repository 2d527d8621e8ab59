"""Clos: as text a tree of pods, as SVG cores over spines over leaves, with hosts listed under their leaf.

A cable has the colour of its spine.
"""

from __future__ import annotations

from collections.abc import Iterator

from topologies.drawing.tools.canvas import HOST, SOFT, SWITCH, Canvas, Look, Point, fan, hue, nic_tip, switch_tip, tint
from topologies.drawing.tools.common import Row, missing, plural, shown
from topologies.drawing.tools.lines import ROWS, flow, gap
from topologies.graph.fabric import Fabric

SIZE: Point = (84, 34)
HOST_SIZE: Point = (76, 36)
PITCH = 116  # from leaf to leaf
SPINE_PITCH = 104
LANES = 14  # in which the cables of a leaf's hosts run down
MOST_COLUMNS = 32


def title(fabric: Fabric) -> str:
    p = fabric.params
    tiers = f"{plural(p['leaves'], 'leaf')}, {plural(p['spines'], 'spine')}"
    pods = f"{p['pods']} pods of {tiers}, {plural(p['cores'], 'core')}" if p["pods"] > 1 else tiers
    several = f", {p['links']} ports each" if p["links"] > 1 else ""
    gpus = f" × {p['gpus']} GPUs" if p.get("gpus", 1) > 1 else ""
    return f"clos: {pods}, {plural(p['hosts_per_leaf'], 'host')}{gpus} per leaf{several}"


def as_lines(fabric: Fabric, width: int) -> Iterator[str]:
    p = fabric.params
    pods = shown(p["pods"], 12)
    if p["cores"]:
        yield from flow([f"core{i}" for i in range(p["cores"])], width)
        yield "│ every spine to every core"
    for pod in pods:
        if pod is None:
            yield f"┊ {gap(p['pods'], pods)} pods"
            continue
        last = pod == p["pods"] - 1
        several = p["pods"] > 1
        indent = ("  " if last else "│ ") if several else ""
        spines = [f"spine{pod * p['spines'] + i}" for i in range(p["spines"])]
        for i, line in enumerate(flow(spines, width - 12)):
            head = f"{'└' if last else '├'} pod {pod}: " if several and i == 0 else indent
            yield head + line
        yield f"{indent}│ every leaf to every spine" + (" of the pod" if several else "")
        yield from (indent + line for line in _leaf_lines(fabric, pod, width - len(indent)))


def _leaf_lines(fabric: Fabric, pod: int, width: int) -> Iterator[str]:
    p = fabric.params
    leaves = shown(p["leaves"], ROWS if p["pods"] == 1 else 8)
    label = len(f"leaf{p['pods'] * p['leaves'] - 1}")
    cell = max(len(f"{n.name} {n.ip}") for n in fabric.nics)
    for i in leaves:
        if i is None:
            yield f"┊ {gap(p['leaves'], leaves)} leaves"
            continue
        leaf = pod * p["leaves"] + i
        per = _nics_per_leaf(fabric)
        hosts = fabric.nics[leaf * per : (leaf + 1) * per]
        last = i == p["leaves"] - 1
        for k, line in enumerate(flow([f"{n.name} {n.ip}".ljust(cell) for n in hosts], width - label - 5, most=3)):
            head = f"{'└' if last else '├'} {f'leaf{leaf}'.ljust(label)} ─ " if k == 0 else f"{' ' if last else '│'}"
            yield head.ljust(label + 5) + line


def _nics_per_leaf(fabric: Fabric) -> int:
    return int(fabric.params["hosts_per_leaf"] * fabric.params.get("gpus", 1))


def draw(fabric: Fabric, canvas: Canvas) -> None:
    p = fabric.params
    pods = shown(p["pods"], 8)
    leaves = shown(p["leaves"], max(4, MOST_COLUMNS // len(pods)))
    spines = shown(p["spines"], max(4, len(leaves) * PITCH // SPINE_PITCH))
    width = max(len(leaves) * PITCH, len(spines) * SPINE_PITCH) + (24 if p["pods"] > 1 else 0)
    tops: dict[int, Point] = {}  # spine -> where cables to the cores leave
    x = 0.0
    for pod in pods:
        if pod is None:
            canvas.note((x + 60, 60), f"… {missing(p['pods'], pods)} more pods", size=12)
            x += 120 + 24
            continue
        tops |= _pod(fabric, canvas, pod, x, width, leaves, spines)
        x += width + 24
    _cores(fabric, canvas, tops, x - 24)


def _pod(
    fabric: Fabric, canvas: Canvas, pod: int, x: float, width: float, leaves: Row, spines: Row
) -> dict[int, Point]:
    p = fabric.params
    hosts = shown(_nics_per_leaf(fabric), 16)
    drop = min(190, 70 + width / 10)
    if p["pods"] > 1:
        height = drop + SIZE[1] + 52 + len(hosts) * (HOST_SIZE[1] + 8)
        canvas.area(x, -SIZE[1] / 2 - 16, width, height, f"pod {pod}", low=True)
    at_leaf: dict[int, Point] = {}
    for i, leaf in enumerate(leaves):
        at = (x + width * (i + 0.5) / len(leaves), drop)
        if leaf is None:
            canvas.note((at[0], at[1] + 4), f"… {missing(p['leaves'], leaves)} more")
            continue
        at_leaf[pod * p["leaves"] + leaf] = at
        _leaf(fabric, canvas, pod * p["leaves"] + leaf, at, hosts)
    tops = {}
    for i, spine in enumerate(spines):
        at = (x + width * (i + 0.5) / len(spines), 0.0)
        if spine is None:
            canvas.note((at[0], 4), f"… {missing(p['spines'], spines)} more")
            continue
        number = pod * p["spines"] + spine
        tops[number] = (at[0], -SIZE[1] / 2)
        switch = fabric.switch_by_name[f"spine{number}"]
        canvas.node(at, SIZE, switch.name, Look.solid(hue(spine)), tip=switch_tip(switch))
        for k, (leaf, (lx, ly)) in enumerate(at_leaf.items()):
            cable = fabric.cable_by_name[f"leaf{leaf}-spine{number}"]
            low = fan((lx, ly - SIZE[1] / 2), SIZE[0], i, len(spines))
            high = fan((at[0], SIZE[1] / 2), SIZE[0], k, len(at_leaf))
            canvas.curve(low, high, tint(hue(spine), 0.2), cable=cable, width=1.8)
    return tops


def _leaf(fabric: Fabric, canvas: Canvas, leaf: int, at: Point, hosts: Row) -> None:
    """A leaf and below it its hosts, on cables side by side at their left: the lowest host's is outermost."""
    count = _nics_per_leaf(fabric)
    switch = fabric.switch_by_name[f"leaf{leaf}"]
    canvas.node(at, SIZE, switch.name, SWITCH, tip=switch_tip(switch))
    x, y = at[0] + 13, at[1] + SIZE[1] / 2 + 16 + HOST_SIZE[1] / 2
    for i, host in enumerate(hosts):
        here = (x, y + i * (HOST_SIZE[1] + 8))
        if host is None:
            canvas.note((here[0], here[1] + 4), f"… {missing(count, hosts)} more")
            continue
        nic = fabric.nics[leaf * count + host]
        canvas.node(here, HOST_SIZE, nic.name, HOST, sub=str(nic.ip), tip=nic_tip(nic))
        lane = at[0] - SIZE[0] / 2 + 2 + LANES * (1 - (i + 1) / len(hosts))
        path = ((lane, at[1] + SIZE[1] / 2), (lane, here[1]), (x - HOST_SIZE[0] / 2, here[1]))
        canvas.line(path, tint(SOFT, 0.35), cable=fabric.cable_by_name[f"{nic.name}-{switch.name}"], width=1.6)


def _cores(fabric: Fabric, canvas: Canvas, tops: dict[int, Point], width: float) -> None:
    count = fabric.params["cores"]
    cores = shown(count, max(4, int(width // SPINE_PITCH)))
    y = -SIZE[1] / 2 - 60 - min(200, width / 9)
    for i, core in enumerate(cores):
        at = (width * (i + 0.5) / len(cores), y)
        if core is None:
            canvas.note((at[0], at[1] + 4), f"… {missing(count, cores)} more")
            continue
        switch = fabric.switch_by_name[f"core{core}"]
        canvas.node(at, SIZE, switch.name, SWITCH, tip=switch_tip(switch))
        for k, (spine, top) in enumerate(tops.items()):
            colour = tint(hue(spine % fabric.params["spines"]), 0.35)
            cable = fabric.cable_by_name[f"spine{spine}-core{core}"]
            low = fan(top, SIZE[0], i, len(cores))
            high = fan((at[0], y + SIZE[1] / 2), SIZE[0], k, len(tops))
            canvas.curve(low, high, colour, cable=cable, width=1.6)
