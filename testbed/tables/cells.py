"""What tables on the terminal are made of."""

from __future__ import annotations

from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table

_WIDE = 10_000


class _Whole(Table):
    """Where the terminal is narrower, its lines go on below; a name or a number that is cut would be another one."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        own = self.__rich_measure__(console, options.update(width=_WIDE)).maximum
        return super().__rich_console__(console, options.update(width=max(own, options.max_width)))


def grid(*columns: tuple[str, str, int]) -> Table:
    """A table without lines; each column is headed by a name and a unit below it, and has at least a width."""
    table = _Whole(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for number, (name, unit, width) in enumerate(columns):
        first = f"#{name:>{width - 1}}\n#{unit:>{width - 1}}"  # `#`: a comment for whatever reads the table
        table.add_column(f"{name}\n{unit}" if number else first, justify="right", no_wrap=True, min_width=width)
    return table


def microseconds(ns: float) -> str:
    """A time in us: two decimals, as nccl-tests has them; three below 10 us."""
    us = ns / 1e3
    return f"{us:.3f}" if us < 10 else f"{us:.2f}"
