"""A fabric drawn: as text for the terminal, as SVG for documents.

A kind of topology is drawn by the file of its name here, and any other network by network.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from pkgutil import iter_modules
from typing import Protocol, cast

from topologies.drawing.tools.canvas import Canvas
from topologies.drawing.tools.common import subtitle
from topologies.graph.fabric import OWN_PORTS, Fabric
from topologies.graph.smartnic import without_complexes

_FILES = frozenset(file.name for file in iter_modules(__path__))
_NETWORK = "network"


class Drawing(Protocol):
    """What a file here has."""

    def title(self, fabric: Fabric) -> str:
        """The fabric in a few words."""

    def as_lines(self, fabric: Fabric, width: int) -> Iterator[str]:
        """Text in so many columns.  Where there is more than fits, the middle is left out and counted."""

    def draw(self, fabric: Fabric, canvas: Canvas) -> None:
        """Nodes and cables, on a canvas that is as large as it takes."""


def as_text(fabric: Fabric, width: int = 100) -> str:
    """A drawing of at most `width` columns (a little more for a few long names), ending in a newline."""
    bare = without_complexes(fabric)
    about = [_drawing(bare.kind).title(bare), subtitle(bare)]
    if fabric.complexes:
        about.append("in every NIC an embedded bridge, nic0 .., and a compute complex, arm0 ..")
    lines = [*about, "", *_drawing(_shape(bare)).as_lines(bare, width)]
    return "\n".join(line.rstrip() for line in lines) + "\n"


def as_svg(fabric: Fabric, *, heading: bool = True) -> str:
    """An SVG document.  Very long rows (hundreds of servers, leaves, ring nodes) leave out their middle and say so."""
    fabric = without_complexes(fabric)
    canvas = Canvas()
    _drawing(_shape(fabric)).draw(fabric, canvas)
    return canvas.svg(_drawing(fabric.kind).title(fabric), subtitle(fabric), heading=heading)


def _shape(fabric: Fabric) -> str:
    """Its kind, unless NICs with several ports spoil that shape."""
    return _NETWORK if any(s.role == OWN_PORTS for s in fabric.switches) else fabric.kind


def _drawing(kind: str) -> Drawing:
    return cast(Drawing, import_module(f"{__name__}.{kind if kind in _FILES else _NETWORK}"))
