"""The picture of a sweep: figures of its table over its first key, a line or colour for each value of the others."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from results.drawing import Across, Series, bar_place, cross, draw, legend, new_figure
from results.summary import figure_label
from results.sweeps import key_names
from results.values import distinct

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_WHY = 24
"""Characters of an error that are shown."""


def sweep(name: str, keys: Sequence[str], points: Sequence[Mapping[str, Any]], figures: Sequence[str]) -> Figure:
    """A panel for each of the figures; points that failed are crosses, and leave a gap."""
    figure, every = new_figure(name, rows=len(figures), height=2.8)
    across = Across([p[keys[0]] for p in points])
    called = _names(keys[1:], points)
    labels = list(dict.fromkeys(called))
    for axes, what in zip(every, figures, strict=True):
        series = [Series(label, colour=k) for k, label in enumerate(labels)]
        for p, label in zip(points, called, strict=True):
            value = math.nan if "error" in p else p.get(what)
            if value is not None:
                series[labels.index(label)].points.append((p[keys[0]], float(value)))
        draw(axes, across, series)
        _crosses(axes, across, keys[0], points, [labels.index(label) for label in called], len(labels))
        axes.set_ylabel(textwrap.fill(figure_label(what), 26))
    every[-1].set_xlabel(keys[0])
    legend(figure)
    return figure


def _names(others: Sequence[str], points: Sequence[Mapping[str, Any]]) -> list[str]:
    """What each point's line is called: the values of the other keys."""
    columns = []
    for key, name in key_names(others).items():
        values = {repr(p[key]): p[key] for p in points}
        texts = dict(zip(values, distinct(list(values.values())), strict=True))
        columns.append([f"{name} {texts[repr(p[key])]}" for p in points])
    return [", ".join(parts) for parts in zip(*columns, strict=True)] if columns else [""] * len(points)


def _crosses(
    axes: Axes, across: Across, key: str, points: Sequence[Mapping[str, Any]], lines: Sequence[int], of: int
) -> None:
    """One cross at each place; over numbers all lines that failed there share it."""
    why: dict[float, str] = {}
    for p, k in zip(points, lines, strict=True):
        if "error" in p:
            why.setdefault(bar_place(across, p[key], k, of), str(p["error"]))
    for place, error in why.items():
        cross(axes, place, error if len(error) <= MOST_WHY else f"{error[:MOST_WHY]}..")
