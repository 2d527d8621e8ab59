"""A comparison on the terminal: keys that differ, figures side by side, counters that moved."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.table import Column, Table
from rich.text import Text

from results.compare.comparison import Comparison, Figure
from results.compare.differences import ABSENT
from results.compare.interval import FEWEST, LEVEL
from results.figures.summary import figure_label
from results.figures.values import cut, full
from results.store.sweeps import key_names

MOST_COUNTERS = 20
MOST_LEFT_OUT = 10
_UNTOLD = "-"


def of_comparison(comparison: Comparison, *, every: bool = False) -> RenderableType:
    """Everything that `testbed compare` shows; `every`: also figures that are equal, and all counters."""
    names = _names(comparison)
    parts: list[RenderableType] = []
    for letter, side in zip(names, comparison.sides, strict=True):
        failed = f", {len(side.states)} failed: {side.states[0]}" if side.states else ""
        points = f"{len(side.points)} points, " if side.swept else ""
        verdict = " and ".join(side.verdicts) or "no verdict"
        parts.append(
            Text(f"# {letter}: {side.path} ({points}{verdict}{failed})", style="bold red" if failed else "dim")
        )
    if comparison.same:
        return Group(*parts, Text("#"), Text("nothing differs: what was measured is the same to the byte"))
    parts += [Text("#"), _keys(comparison, names), Text("#"), *_figures(comparison, names, every)]
    if comparison.counters:
        parts += [Text("#"), *_counters(comparison, names, every)]
    for n, at in comparison.left_out[:MOST_LEFT_OUT]:
        parts.append(Text(f"# only in {names[n]}: {_at(at)}"))
    if (more := len(comparison.left_out) - MOST_LEFT_OUT) > 0:
        parts.append(Text(f"# and {more} points more that not every side has"))
    return Group(*parts)


def _names(comparison: Comparison) -> list[str]:
    """A, B, C.. before names that would be long or alike."""
    return [chr(ord("A") + n) if n < 26 else f"#{n + 1}" for n in range(len(comparison.sides))]


def _table(*columns: str | Column) -> Table:
    return Table(*columns, box=None, header_style="bold", pad_edge=False)


def _right(header: str) -> Column:
    return Column(header, justify="right", no_wrap=True)


def _keys(comparison: Comparison, names: Sequence[str]) -> RenderableType:
    if not comparison.differing:
        return Text("no key differs")
    table = _table("key", *names)
    for key, values in comparison.differing.items():
        table.add_row(escape(key), *(escape(value if value == ABSENT else cut(full(value))) for value in values))
    return table


def _figures(comparison: Comparison, names: Sequence[str], every: bool) -> list[RenderableType]:
    if not comparison.points:
        return [Text("the sweeps share no point: their swept keys have no value in common", style="bold red")]
    shown = [f for f in comparison.figures if every or any(f.ratio(n) != 1 for n in range(1, len(names)))]
    equal = len(comparison.figures) - len(shown)
    parts: list[RenderableType] = []
    if shown:
        several = any(len(of) > 1 for f in shown for of in f.values)
        ratios = [_right(f"{name}/{names[0]}") for name in names[1:]]
        intervals = [_right(f"{LEVEL:.0%} of it") for _ in names[1:]] if several else []
        heads = [head for pair in zip(ratios, intervals, strict=True) for head in pair] if several else ratios
        table = _table(*key_names(comparison.keys).values(), "figure", *map(_right, names), *heads)
        for figure in shown:
            table.add_row(*_row(figure, len(names), several))
        parts.append(table)
        few = min((len(of) for f in shown for of in f.values), default=0)
        if several and few < FEWEST:
            parts.append(Text(f"# no interval for fewer than {FEWEST} seeds a side"))
        if several:
            parts.append(Text("# *: the difference stands out of the spread over seeds"))
    if equal:
        parts.append(Text(f"# {equal} figure{'s are' if equal > 1 else ' is'} equal on all sides (--all shows them)"))
    return parts


def _row(figure: Figure, sides: int, several: bool) -> list[str]:
    cells = [full(value) for value in figure.at.values()]
    cells += [figure_label(figure.name), *(_number(figure.mean(n)) for n in range(sides))]
    for n in range(1, sides):
        ratio = figure.ratio(n)
        found = figure.interval(n) if several else None
        cells.append(_UNTOLD if ratio is None else f"{ratio:.4g}" + ("*" if found and found.stands_out else ""))
        if several:
            told = f"{_number(found.low)} .. {_number(found.high)}" if found else _UNTOLD
            cells.append(told if found is None or found.ratio else f"by {told}")
    return [escape(cell) for cell in cells]


def _counters(comparison: Comparison, names: Sequence[str], every: bool) -> list[RenderableType]:
    table = _table("counter that moved", "unit", *map(_right, names), "most at", *(_right(f"{n} there") for n in names))
    shown = comparison.counters if every else comparison.counters[:MOST_COUNTERS]
    for one in shown:
        table.add_row(f"{one.frame} {one.name}", one.unit, *map(str, one.values), one.place, *map(str, one.there))
    more = len(comparison.counters) - len(shown)
    return [table, *([Text(f"# and {more} counters more (--all shows them)")] if more else [])]


def _at(at: dict[str, Any]) -> str:
    return ", ".join(f"{name} = {full(at[key])}" for key, name in key_names(at).items()) or "its run"


def _number(value: float | None) -> str:
    return _UNTOLD if value is None or value != value else f"{value:.5g}"
