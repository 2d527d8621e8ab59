"""What tables on the terminal are made of."""

from __future__ import annotations

from rich.table import Table


def grid(*columns: tuple[str, str, int]) -> Table:
    """A table without lines; each column is headed by a name and a unit below it, and has at least a width."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for number, (name, unit, width) in enumerate(columns):
        first = f"#{name:>{width - 1}}\n#{unit:>{width - 1}}"  # `#`: a comment for whatever reads the table
        table.add_column(f"{name}\n{unit}" if number else first, justify="right", no_wrap=True, min_width=width)
    return table


def microseconds(ns: float) -> str:
    """A time in us: two decimals, as nccl-tests has them; three below 10 us."""
    us = ns / 1e3
    return f"{us:.3f}" if us < 10 else f"{us:.2f}"
