"""Lines of text for a terminal: columns, rows joined by cables, and what is left out where there is more than fits."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from topologies.drawing.tools.common import Row, missing, plural, shown
from topologies.graph.fabric import Fabric

ROWS = 40


def addresses(fabric: Fabric) -> str:
    first, last = fabric.nics[0], fabric.nics[-1]
    return f"{plural(len(fabric.nics), 'address')}: {first.name} {first.ip} to {last.name} {last.ip}"


def wired(texts: Sequence[str], width: int) -> str:
    """The texts in columns of this width, joined by cables."""
    return "".join(f"{text} ".ljust(width + 3, "─") + " " for text in texts[:-1]) + texts[-1]


def cells(texts: Sequence[str], width: int) -> str:
    return "".join(text.ljust(width) for text in texts)


def gap(count: int, row: Row) -> str:
    return f"… {missing(count, row)} more"


def flow(texts: Sequence[str], width: int, most: int = ROWS) -> Iterator[str]:
    """The texts in columns, as many as fit, in at most `most` lines."""
    cell = max(map(len, texts)) + 2
    across = max(1, width // cell)
    row = shown(len(texts), max(3, across * most))
    picked = [gap(len(texts), row) if i is None else texts[i] for i in row]
    for i in range(0, len(picked), across):
        yield cells(picked[i : i + across], cell)
