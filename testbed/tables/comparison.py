"""A comparison as tables: keys that differ, figures side by side, counters that moved; on a terminal or on a page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
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
_NONE = "-"


@dataclass(frozen=True)
class Part:
    """A table; `texts`: how many of its first columns are words. `none` is said without rows, `notes` below it."""

    title: str
    heads: Sequence[str]
    texts: int
    rows: Sequence[Sequence[str]]
    none: str = ""
    notes: Sequence[str] = ()


def names(comparison: Comparison) -> list[str]:
    """A, B, C.. before names that would be long or alike."""
    return [chr(ord("A") + n) if n < 26 else f"#{n + 1}" for n in range(len(comparison.sides))]


def parts(comparison: Comparison, *, every: bool = False, whole: bool = False) -> list[Part]:
    """Everything that differs; `every`: also figures that are equal, and all counters; `whole`: also long values."""
    called = names(comparison)
    keys = [_keys(comparison, called, whole)]
    if comparison.same:
        return keys if comparison.differing else []
    tables = [*keys, _figures(comparison, called, every)]
    if not comparison.same_numbers:
        none = "the sides have different numbers of runs, so their counters are not compared"
        return [*tables, Part("Counters that moved", [], 0, [], none)]
    return [*tables, _counters(comparison, called, every)] if comparison.counters else tables


def nothing(comparison: Comparison) -> str:
    """What stands in front of "what was measured is the same"."""
    return "" if comparison.differing else "nothing differs: "


def of_comparison(comparison: Comparison, *, every: bool = False, whole: bool = False) -> RenderableType:
    """Everything that `testbed compare` shows; `whole`: long values are not cut for a terminal."""
    shown: list[RenderableType] = []
    for letter, side in zip(names(comparison), comparison.sides, strict=True):
        failed = f", {len(side.states)} failed: {side.states[0]}" if side.states else ""
        points = f"{len(side.points)} points, " if side.swept else ""
        verdict = " and ".join(side.verdicts) or "no verdict"
        older = ", of an older version: some of its counters mean something else" if side.older else ""
        text = f"# {letter}: {side.path} ({points}{verdict}{older}{failed})"
        shown.append(Text(text, style="bold red" if failed else "dim"))
    if comparison.same:
        shown += [Text("#"), Text(f"{nothing(comparison)}what was measured is the same to the byte")]
    for part in parts(comparison, every=every, whole=whole):
        shown.append(Text("#"))
        shown.append(_table(part) if part.rows else Text(part.none))
        shown += [Text(f"# {note}") for note in part.notes]
    return Group(*shown)


def _table(part: Part) -> Table:
    numbers = (Column(head, justify="right", no_wrap=True) for head in part.heads[part.texts :])
    table = Table(*part.heads[: part.texts], *numbers, box=None, header_style="bold", pad_edge=False)
    for row in part.rows:
        table.add_row(*map(escape, row))
    return table


def _keys(comparison: Comparison, called: Sequence[str], whole: bool) -> Part:
    written = full if whole else lambda value: cut(full(value))
    rows = [
        [key, *(value if value == ABSENT else written(value) for value in values)]
        for key, values in comparison.differing.items()
    ]
    return Part("Keys that differ", ["key", *called], 1 + len(called), rows, "no key differs")


def _figures(comparison: Comparison, called: Sequence[str], every: bool) -> Part:
    shown = [f for f in comparison.figures if every or any(f.ratio(n) != 1 for n in range(1, len(called)))]
    equal = len(comparison.figures) - len(shown)
    several = any(len(of) > 1 for f in shown for of in f.values)
    against = [[f"{name}/{called[0]}", f"{LEVEL:.0%} interval"][: 1 + several] for name in called[1:]]
    heads = [*key_names(comparison.keys).values(), "figure", *called, *(head for pair in against for head in pair)]
    notes = []
    if several and min(len(of) for f in shown for of in f.values) < FEWEST:
        notes.append(f"no interval for fewer than {FEWEST} seeds a side")
    if several:
        notes.append(f"*: the difference stands out of the spread over seeds, with {LEVEL:.0%} confidence")
    notes += _dropped(comparison, called)
    notes += [f"left out: {figure_label(name)}, a mean over sizes that differ" for name in comparison.unlike]
    if equal:
        notes.append(f"{equal} figure{'s are' if equal > 1 else ' is'} equal on all sides (--all shows them)")
    notes += [f"only in {called[n]}: {_at(at)}" for n, at in comparison.left_out[:MOST_LEFT_OUT]]
    if (more := len(comparison.left_out) - MOST_LEFT_OUT) > 0:
        notes.append(f"and {more} points more that not every side has")
    none = "no figure differs" if comparison.points else "they share no point: no values of swept keys in common"
    rows = [_row(figure, len(called), several) for figure in shown]
    return Part("Figures", heads, len(comparison.keys) + 1, rows, none, notes)


def _dropped(comparison: Comparison, called: Sequence[str]) -> list[str]:
    """The seeds that only one side has: what is compared are pairs of the same seed."""
    notes = dict.fromkeys(
        f"seeds that not every side has, left out of {called[n]}{f' at {_at(f.at)}' if f.at else ''}: "
        + ", ".join(map(str, seeds))
        for f in comparison.figures
        for n, seeds in enumerate(f.dropped)
        if seeds
    )
    more = [f"and more such seeds at {len(notes) - MOST_LEFT_OUT} more places"] if len(notes) > MOST_LEFT_OUT else []
    return [*list(notes)[:MOST_LEFT_OUT], *more]


def _row(figure: Figure, sides: int, several: bool) -> list[str]:
    cells = [full(value) for value in figure.at.values()]
    cells += [figure_label(figure.name), *(_number(figure.mean(n)) for n in range(sides))]
    for n in range(1, sides):
        ratio = figure.ratio(n)
        interval = figure.interval(n) if several else None
        cells.append(_NONE if ratio is None else f"{ratio:.4g}" + ("*" if interval and interval.stands_out else ""))
        if several:
            text = f"{_number(interval.low)} .. {_number(interval.high)}" if interval else _NONE
            cells.append(text if interval is None or interval.ratio else f"by {text}")
    return cells


def _counters(comparison: Comparison, called: Sequence[str], every: bool) -> Part:
    shown = comparison.counters if every else comparison.counters[:MOST_COUNTERS]
    rows = [[f"{c.frame} {c.name}", c.unit, c.place, *map(str, c.values), *map(str, c.there)] for c in shown]
    heads = ["counter that moved", "unit", "most at", *called, *(f"{n} there" for n in called)]
    more = len(comparison.counters) - len(shown)
    notes = [f"and {more} counters more (--all shows them)"] if more else []
    return Part("Counters that moved", heads, 3, rows, "", notes)


def _at(at: dict[str, Any]) -> str:
    return ", ".join(f"{name} = {full(at[key])}" for key, name in key_names(at).items()) or "its run"


def _number(value: float | None) -> str:
    return _NONE if value is None or value != value else f"{value:.5g}"
