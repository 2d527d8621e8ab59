"""Who gets what, as a table: a line for those of a step that send alike."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.console import RenderableType
from rich.text import Text

from results.figures.report import gigabytes
from results.figures.sharing import rate, shares
from results.figures.values import jain
from testbed.tables.cells import grid, microseconds


def of_rows(rows: Sequence[Mapping[str, Any]]) -> Iterator[RenderableType]:
    """Of one step's rows of `results`; nothing where all send alike."""
    found = shares(rows)
    if not found:
        return
    fair = jain([rate(row) for row in rows])
    when = "while all are there" if all(row.get("together_Bps") for row in rows) else "by their mean rates"
    yield Text("#")
    yield Text(f"# who gets what {when}; Jain's index of all {fair:.3f}", style="bold")
    table = grid(
        ("sent by", "", max(9, *(2 + len(one.sends_by) for one in found))), ("count", "", 5), ("rate", "(GB/s)", 7),
        ("share", "(%)", 6), ("if even", "(%)", 7), ("jain", "", 5), ("p50", "(us)", 9), ("p99", "(us)", 9),
    )  # fmt: skip
    for one in found:
        table.add_row(
            *(one.sends_by, str(one.count), gigabytes(one.rate_Bps)),
            *(f"{100 * share:.1f}" for share in (one.share, one.even)),
            *(f"{one.jain:.3f}", microseconds(one.time_p50_ns), microseconds(one.time_p99_ns)),
        )
    yield table
