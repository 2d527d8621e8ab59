"""What is written about collectives and algorithms, from their entries: `python -m workloads.reference`.

Writes the tables of docs/collectives.md, between their markers.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

from workloads.registry import ALGORITHMS, COLLECTIVES

DOCUMENT = Path(__file__).resolve().parents[1] / "docs" / "collectives.md"


def collectives() -> Iterator[str]:
    yield "| collective | what it leaves behind | `sizes` | bus factor |\n|---|---|---|---|\n"
    for c in COLLECTIVES.values():
        yield f"| `{c.name}` | {c.summary} | {c.size} | {c.busbw.text} |\n"


def algorithms() -> Iterator[str]:
    yield "| collective | algorithm | |\n|---|---|---|\n"
    order = list(COLLECTIVES)
    entries = sorted(ALGORITHMS.values(), key=lambda entry: order.index(entry.collective.name))
    for name, its in groupby(entries, key=lambda entry: entry.collective.name):
        for k, entry in enumerate(its):
            yield f"| {'' if k else f'`{name}`'} | `{entry.name}` | {entry.summary} |\n"


def written(document: str) -> str:
    """The document with its tables as the entries have them now."""
    for name, lines in (("collectives", collectives()), ("algorithms", algorithms())):
        start, end = f"<!-- {name}: written by python -m workloads.reference -->\n", f"<!-- end of {name} -->\n"
        before, _, rest = document.partition(start)
        document = before + start + "".join(lines) + end + rest.partition(end)[2]
    return document


if __name__ == "__main__":
    DOCUMENT.write_text(written(DOCUMENT.read_text()))
