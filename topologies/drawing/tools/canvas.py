"""A small SVG canvas: boxes under cables under nodes, sized to what was drawn.

Lengths are pixels, y points down.  Node boxes carry the class `node`, cables the class `cable`, and both a tooltip and
their name (`data-node`, `data-cable`), by which a page finds them.
"""

from __future__ import annotations

from collections.abc import Sequence
from colorsys import hls_to_rgb
from dataclasses import dataclass
from math import hypot
from xml.sax.saxutils import escape, quoteattr

from topologies.graph.fabric import Cable, Nic, Switch

Point = tuple[float, float]

INK = "#0f172a"
SOFT = "#64748b"
EDGE = "#cbd5e1"
PANEL = "#f8fafc"
WHITE = "#ffffff"
FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', 'DejaVu Sans', sans-serif"
HUES = ("#2563eb", "#ea580c", "#059669", "#7c3aed", "#db2777", "#0891b2", "#b45309", "#4d7c0f")
MARGIN = 28
HEADING = 62


def hue(i: int) -> str:
    """A colour for the i-th rail, spine or dimension."""
    if i < len(HUES):
        return HUES[i]
    r, g, b = hls_to_rgb(i * 0.618 % 1, 0.4, 0.65)
    return f"#{round(r * 255):02x}{round(g * 255):02x}{round(b * 255):02x}"


def tint(colour: str, amount: float) -> str:
    """The colour mixed with white: 0 leaves it, 1 is white."""
    parts = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return "#" + "".join(f"{round(p + (255 - p) * amount):02x}" for p in parts)


def text_width(text: str, size: float) -> float:
    """About how wide a text is: fonts differ, so a little more than most need."""
    return 0.63 * size * len(text)


@dataclass(frozen=True)
class Look:
    """How a node is painted."""

    fill: str
    ink: str
    stroke: str

    @classmethod
    def solid(cls, colour: str) -> Look:
        return cls(colour, WHITE, colour)

    @classmethod
    def soft(cls, colour: str) -> Look:
        return cls(tint(colour, 0.88), INK, tint(colour, 0.35))


SWITCH = Look.solid("#334155")
HOST = Look(WHITE, INK, EDGE)


class Canvas:
    def __init__(self) -> None:
        self._areas: list[str] = []
        self._cables: list[str] = []
        self._nodes: list[str] = []
        self._xs: list[float] = []
        self._ys: list[float] = []

    def area(self, x: float, y: float, w: float, h: float, label: str, *, low: bool = False) -> None:
        """A rounded box behind everything, labelled in its upper (or lower) left corner."""
        self._cover((x, y), (x + w, y + h))
        self._areas.append(
            f'<rect x="{_n(x)}" y="{_n(y)}" width="{_n(w)}" height="{_n(h)}" rx="12" fill="{PANEL}" stroke="#e2e8f0"/>'
        )
        self._areas.append(_text((x + 12, y + h - 10 if low else y + 17), label, 11.5, SOFT, "start", 600))

    def node(self, at: Point, size: Point, name: str, look: Look, *, sub: str = "", tip: str = "") -> None:
        """A box around `at`, with its name and, smaller below it, `sub`."""
        (x, y), (w, h) = at, size
        self._cover((x - w / 2, y - h / 2), (x + w / 2, y + h / 2))
        self._nodes.append(
            f'<g class="node" data-node={quoteattr(name)}><title>{escape(tip or name)}</title>'
            f'<rect x="{_n(x - w / 2)}" y="{_n(y - h / 2)}" width="{_n(w)}" height="{_n(h)}" '
            f'rx="{_n(min(8, h / 2.6))}" fill="{look.fill}" stroke="{look.stroke}" stroke-width="1.3"/>'
        )
        lift = 6.5 if sub else 0
        self._nodes.append(_text((x, y + 4 - lift), name, 12, look.ink, "middle", 600))
        if sub:
            self._nodes.append(_text((x, y + 11), sub, 9.5, look.ink if look.fill != WHITE else SOFT, "middle", 400))
        self._nodes.append("</g>")

    def note(self, at: Point, text: str, *, anchor: str = "middle", size: float = 11) -> None:
        w = text_width(text, size)
        left = at[0] - {"start": 0, "middle": w / 2, "end": w}[anchor]
        self._cover((left, at[1] - size), (left + w, at[1]))
        self._nodes.append(_text(at, text, size, SOFT, anchor, 400))

    def line(
        self, points: Sequence[Point], colour: str, *, cable: Cable | None = None, width: float = 2, radius: float = 10
    ) -> None:
        """A line through the points with rounded corners; a cable, or just a line."""
        self._cover(*points)
        self._path(rounded(points, radius), colour, cable, width)

    def curve(self, a: Point, b: Point, colour: str, *, cable: Cable, width: float = 2) -> None:
        """A cable that leaves and arrives vertically."""
        self._cover(a, b)
        mid = (a[1] + b[1]) / 2
        d = f"M{_p(a)}C{_p((a[0], mid))} {_p((b[0], mid))} {_p(b)}"
        self._path(d, colour, cable, width)

    def bow(self, a: Point, b: Point, lift: float, colour: str, *, cable: Cable, width: float = 2) -> None:
        """A cable that bends away from the straight line by about `lift`, to its left as seen from a."""
        dx, dy = b[0] - a[0], b[1] - a[1]
        reach = lift / (hypot(dx, dy) or 1) * 4 / 3
        nx, ny = dy * reach, -dx * reach
        c, d = (a[0] + dx * 0.2 + nx, a[1] + dy * 0.2 + ny), (b[0] - dx * 0.2 + nx, b[1] - dy * 0.2 + ny)
        self._cover(a, b, ((c[0] + d[0]) / 2 - nx / 4, (c[1] + d[1]) / 2 - ny / 4))
        self._path(f"M{_p(a)}C{_p(c)} {_p(d)} {_p(b)}", colour, cable, width)

    def arc(self, a: Point, b: Point, r: float, colour: str, *, cable: Cable | None = None, dash: bool = False) -> None:
        """Clockwise from a to b on a circle of radius r, less than half of it."""
        self._cover(a, b)
        self._path(f"M{_p(a)}A{_n(r)} {_n(r)} 0 0 1 {_p(b)}", colour, cable, 2, dash)

    def svg(self, title: str, subtitle: str, *, heading: bool = True) -> str:
        """The whole picture, with a heading or, where a page says all that, without one."""
        left, top = min(self._xs) - MARGIN, min(self._ys) - MARGIN - (HEADING if heading else 0)
        wide = max(text_width(title, 19), text_width(subtitle, 12)) + 2 * MARGIN if heading else 0
        width, height = max(max(self._xs) + MARGIN - left, wide), max(self._ys) + MARGIN - top
        # A heading wider than the drawing leaves the drawing in the middle.
        left -= (width - (max(self._xs) + MARGIN - left)) / 2
        size = f'width="{_n(width)}" height="{_n(height)}"'
        label = quoteattr(f"{title}: {subtitle}")
        box = f"{_n(left)} {_n(top)} {_n(width)} {_n(height)}"
        headings = (
            _text((left + MARGIN, top + MARGIN + 14), title, 19, INK, "start", 700),
            _text((left + MARGIN, top + MARGIN + 34), subtitle, 12, SOFT, "start", 400),
        )
        return "\n".join(
            [
                f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="{box}" {size} role="img" aria-label={label}>',
                f'<rect x="{_n(left)}" y="{_n(top)}" {size} fill="{WHITE}"/>',
                f'<g font-family="{FONT}">',
                *(headings if heading else ()),
                *self._areas,
                '<g fill="none" stroke-linecap="round">',
                *self._cables,
                "</g>",
                *self._nodes,
                "</g>",
                "</svg>",
                "",
            ]
        )

    def _path(self, d: str, colour: str, cable: Cable | None, width: float, dash: bool = False) -> None:
        style = f'stroke="{colour}" stroke-width="{_n(width)}"' + (' stroke-dasharray="2 7"' if dash else "")
        if cable is None:
            self._cables.append(f'<path d="{d}" {style}/>')
        else:
            named = f"data-cable={quoteattr(cable.name)}"
            tip = escape(cable_tip(cable))
            self._cables.append(f'<path class="cable" {named} d="{d}" {style}><title>{tip}</title></path>')

    def _cover(self, *points: Point) -> None:
        self._xs += [x for x, _ in points]
        self._ys += [y for _, y in points]


def fan(at: Point, width: float, i: int, count: int) -> Point:
    """Where the i-th of `count` cables leaves the edge of a node: side by side rather than all in its middle."""
    return at[0] + (i - (count - 1) / 2) * min(9, (width - 20) / max(count - 1, 1)), at[1]


def rounded(points: Sequence[Point], radius: float) -> str:
    """SVG path data of the polyline with its corners rounded."""
    path = "M" + _p(points[0])
    for before, corner, after in zip(points, points[1:], points[2:], strict=False):
        r = min(radius, _distance(before, corner) / 2, _distance(corner, after) / 2)
        path += f"L{_p(_toward(corner, before, r))}Q{_p(corner)} {_p(_toward(corner, after, r))}"
    return path + "L" + _p(points[-1])


def nic_tip(nic: Nic) -> str:
    return f"{nic.name}: rank {nic.rank}, {nic.ip}, {nic.mac}"


def switch_tip(switch: Switch) -> str:
    return f"{switch.name}: {switch.ports} port{'s' if switch.ports > 1 else ''}, dpid {switch.dpid}"


def cable_tip(cable: Cable) -> str:
    own = [f"{cable.rate_bps / 1e9:g} Gb/s"] if cable.rate_bps is not None else []
    own += [f"{cable.delay_ns:g} ns"] if cable.delay_ns is not None else []
    return ", ".join([f"{cable.name}: port {cable.a.port} to port {cable.b.port}", *own])


def _distance(a: Point, b: Point) -> float:
    return hypot(b[0] - a[0], b[1] - a[1])


def _toward(a: Point, b: Point, by: float) -> Point:
    share = by / (_distance(a, b) or 1)
    return a[0] + (b[0] - a[0]) * share, a[1] + (b[1] - a[1]) * share


def _text(at: Point, text: str, size: float, colour: str, anchor: str, weight: int) -> str:
    return (
        f'<text x="{_n(at[0])}" y="{_n(at[1])}" font-size="{_n(size)}" font-weight="{weight}" fill="{colour}" '
        f'text-anchor="{anchor}">{escape(text)}</text>'
    )


def _n(value: float) -> str:
    return f"{round(value, 1):g}" if abs(value) < 1e5 else f"{value:.0f}"


def _p(point: Point) -> str:
    return f"{_n(point[0])},{_n(point[1])}"
