"""Steps of programs on a terminal: what each has printed, as the figures of its table, or how long it took."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.console import RenderableType
from rich.text import Text

from results.figures.report import gigabytes
from testbed.tables.cells import grid, microseconds

MOST = 200


def of_step(step: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> Iterator[RenderableType]:
    """One line for each figure; `algbw` and `rate` where the program measures bandwidth."""
    yield Text(f"# {_command(step, rows[0])}", style="bold")
    table = grid(
        ("program", "", 9), ("size", "(B)", 10), ("time", "(us)", 10), ("algbw", "(GB/s)", 7), ("rate", "(M/s)", 9),
        ("exit", "", 5),
    )  # fmt: skip
    for row in rows[:MOST]:
        messages, code = row.get("messages_per_s"), row.get("code")
        table.add_row(
            row["program"],
            str(row["size_bytes"] or "-"),
            microseconds(row["time_ns"]),
            gigabytes(row["algbw_Bps"]),
            "" if messages is None else f"{messages / 1e6:.6f}",
            "ended" if code is None else Text(str(int(code)), style="bold red" if code else ""),
        )
    yield table
    if len(rows) > MOST:
        yield Text(f"# and {len(rows) - MOST} more, all in the frame `results`", style="dim")


def _command(step: Mapping[str, Any], row: Mapping[str, Any]) -> str:
    """As the first of them was typed."""
    rank = int(row["program"].partition("->")[0])
    return " ".join(next((one["argv"] for one in step["processes"] if one["rank"] == rank), [step["name"]]))
