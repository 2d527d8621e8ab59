"""Rail: spines over rails over servers; as SVG every rail in a colour of its own.

There, a few servers stand side by side.  Many are stacked: each rail's cables then run down in one trunk and branch
off.
"""

from __future__ import annotations

from collections.abc import Iterator

from topologies.drawing.tools.canvas import EDGE, SOFT, SWITCH, Canvas, Look, Point, fan, hue, nic_tip, switch_tip, tint
from topologies.drawing.tools.common import missing, plural, shown
from topologies.drawing.tools.lines import ROWS, addresses, cells, flow, gap
from topologies.graph.fabric import Fabric

CHIP: Point = (56, 26)
RAIL: Point = (88, 38)
SPINE: Point = (80, 32)
WIDEST = 1500  # servers side by side, beyond that stacked


def title(fabric: Fabric) -> str:
    p = fabric.params
    spines = f", {plural(p['spines'], 'spine')}" if p["spines"] else ""
    return f"rail: {plural(p['servers'], 'server')} × {plural(p['gpus'], 'GPU')}{spines}"


def as_lines(fabric: Fabric, width: int) -> Iterator[str]:
    p = fabric.params
    left = len(fabric.hosts[-1].name) + 2
    labels = [f"{nic.name} {nic.ip}" for nic in fabric.nics]
    if p["gpus"] * (max(map(len, labels)) + 4) > width - left:
        labels = [nic.name for nic in fabric.nics]
    cell = max(10, max(map(len, labels)) + 4)
    columns = shown(p["gpus"], max(3, (width - left) // cell))
    if p["spines"]:
        for line in flow([f"spine{i}" for i in range(p["spines"])], width - left):
            yield " " * left + line
        yield " " * left + "│ every rail to every spine" if p["gpus"] > 1 else " " * left + "│"
    yield " " * left + cells([gap(p["gpus"], columns) if r is None else f"rail{r}" for r in columns], cell)
    rows = shown(p["servers"], ROWS)
    for s in rows:
        if s is None:
            yield " " * left + cells(["┊" if r is None else "│" for r in columns], cell)
            yield gap(p["servers"], rows) + " servers"
            continue
        elbow = "└" if s == p["servers"] - 1 else "├"
        texts = ["…" if r is None else f"{elbow} {labels[s * p['gpus'] + r]}" for r in columns]
        yield f"h{s}".ljust(left) + cells(texts, cell)
    if labels[0] == fabric.nics[0].name:
        yield ""
        yield addresses(fabric)


def draw(fabric: Fabric, canvas: Canvas) -> None:
    servers, gpus = int(fabric.params["servers"]), int(fabric.params["gpus"])
    box = max(gpus * (CHIP[0] + 8) + 16, 84)
    if servers * (box + 20) <= WIDEST:
        _side_by_side(fabric, canvas, servers, gpus, box)
    else:
        _stacked(fabric, canvas, servers, gpus)


def _side_by_side(fabric: Fabric, canvas: Canvas, servers: int, gpus: int, box: float) -> None:
    total = max(servers * (box + 20) - 20, gpus * (RAIL[0] + 16))
    drop = min(200, 80 + total / 14)
    rails = {r: (total * (r + 0.5) / gpus, 0.0) for r in range(gpus)}
    bottom = RAIL[1] / 2
    top = bottom + drop
    _upper(fabric, canvas, rails, drop)
    for s in range(servers):
        x = (total - servers * (box + 20) + 20) / 2 + s * (box + 20)
        canvas.area(x, top, box, 76 if gpus > 1 else 60, f"h{s}")
        inset = (box - gpus * (CHIP[0] + 8) + 8) / 2
        chips = [(x + inset + r * (CHIP[0] + 8) + CHIP[0] / 2, top + 39) for r in range(gpus)]
        for r, at in enumerate(chips):
            name = f"h{s}.{r}"
            _chip(fabric, canvas, name, at, r)
            port = fan((rails[r][0], bottom), RAIL[0], s, servers)
            canvas.curve((at[0], at[1] - CHIP[1] / 2), port, hue(r), cable=fabric.cable_by_name[f"{name}-rail{r}"])
        if gpus > 1:
            _scale_up(canvas, chips)


def _stacked(fabric: Fabric, canvas: Canvas, servers: int, gpus: int) -> None:
    columns, rows = shown(gpus, 24), shown(servers, 72)
    pitch, height = RAIL[0] + 16, 46
    xs = [60 + RAIL[0] / 2 + i * pitch for i in range(len(columns))]
    rails = {r: (x, 0.0) for r, x in zip(columns, xs, strict=True) if r is not None}
    if None in columns:
        canvas.note((xs[columns.index(None)], 4), f"… {missing(gpus, columns)} more rails")
    width = xs[-1] + RAIL[0] / 2 + 8
    _upper(fabric, canvas, rails, 110)
    for i, s in enumerate(rows):
        y = 48 + i * (height + 6)
        if s is None:
            canvas.note((width / 2, y + height / 2 + 4), f"… {missing(servers, rows)} more servers", size=12)
            continue
        canvas.area(0, y, width, height, f"h{s}")
        chips: list[Point] = []
        for r, (x, _) in rails.items():
            at = (x + 8, y + 19)
            chips.append(at)
            _chip(fabric, canvas, f"h{s}.{r}", at, r)
            # The trunk runs left of the chips; cables of one rail lie on each other in it.
            trunk, cable = x - RAIL[0] / 2 + 8, fabric.cable_by_name[f"h{s}.{r}-rail{r}"]
            canvas.line(((trunk, RAIL[1] / 2), (trunk, at[1]), (at[0] - CHIP[0] / 2, at[1])), hue(r), cable=cable)
        if gpus > 1:
            _scale_up(canvas, chips)


def _upper(fabric: Fabric, canvas: Canvas, rails: dict[int, Point], drop: float) -> None:
    """The rail switches, and above them the spines with their cables."""
    for r, at in rails.items():
        switch = fabric.switch_by_name[f"rail{r}"]
        canvas.node(at, RAIL, switch.name, Look.solid(hue(r)), sub=f"10.{r}.0.0/16", tip=switch_tip(switch))
    count = int(fabric.params["spines"])
    first, last = rails[0][0], rails[max(rails)][0]
    pitch = SPINE[0] + 30
    spines = shown(count, max(4, int((last - first) / pitch) + 1))
    pitch = max(pitch, (last - first + RAIL[0] + 16) / max(len(spines), 1))
    for i, s in enumerate(spines):
        at = ((first + last) / 2 + (i - (len(spines) - 1) / 2) * pitch, -drop - RAIL[1])
        if s is None:
            canvas.note((at[0], at[1] + 4), f"… {missing(count, spines)} more")
            continue
        switch = fabric.switch_by_name[f"spine{s}"]
        canvas.node(at, SPINE, switch.name, SWITCH, tip=switch_tip(switch))
        for k, (r, (x, y)) in enumerate(rails.items()):
            cable = fabric.cable_by_name[f"rail{r}-spine{s}"]
            low = fan((x, y - RAIL[1] / 2), RAIL[0], i, len(spines))
            high = fan((at[0], at[1] + SPINE[1] / 2), SPINE[0], k, len(rails))
            canvas.curve(low, high, tint(hue(r), 0.2), cable=cable, width=1.8)


def _chip(fabric: Fabric, canvas: Canvas, name: str, at: Point, rail: int) -> None:
    canvas.node(at, CHIP, name, Look.soft(hue(rail)), tip=nic_tip(fabric.nic_by_name[name]))


def _scale_up(canvas: Canvas, chips: list[Point]) -> None:
    """The bar that joins a server's GPUs."""
    y = chips[0][1] + CHIP[1] / 2 + 8
    for x, cy in chips:
        canvas.line(((x, cy), (x, y)), EDGE, width=3)
    canvas.line(((chips[0][0] - 14, y), (chips[-1][0] + 14, y)), tint(SOFT, 0.35), width=5)
