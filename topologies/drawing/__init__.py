"""A fabric drawn: as text for the terminal, as SVG for documents."""

from __future__ import annotations

from . import draw_any, draw_clos, draw_rail, draw_torus
from .draw_canvas import Canvas
from .draw_common import subtitle, title
from .draw_round import draw_ring, draw_star
from .draw_text import as_text
from .fabric import OWN_PORTS, Fabric
from .smartnic import without_complexes
from .torus import dimensions

_LAYOUTS = {
    "rail": draw_rail.draw,
    "clos": draw_clos.draw,
    "torus": draw_torus.draw,
    "ring": draw_ring,
    "star": draw_star,
}  # any other: draw_any

__all__ = ["as_svg", "as_text"]


def as_svg(fabric: Fabric) -> str:
    """An SVG document.  Very long rows (hundreds of servers, leaves, ring nodes) leave out their middle and say so."""
    fabric = without_complexes(fabric)
    canvas = Canvas()
    flat = fabric.kind == "torus" and len(dimensions(fabric)) == 1
    several = any(s.role == OWN_PORTS for s in fabric.switches)
    layout = draw_any.draw if several else _LAYOUTS.get(fabric.kind, draw_any.draw)
    (draw_ring if flat else layout)(fabric, canvas)
    return canvas.svg(title(fabric), subtitle(fabric))
