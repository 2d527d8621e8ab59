"""The picture of a sweep: figures of its table over its first key, a line or colour for each value of the others."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import TYPE_CHECKING, Any

from results.figures.draws import REPLICATE, around_mean
from results.figures.summary import figure_label
from results.figures.values import distinct
from results.pictures.drawing import (
    MOST_PANELS,
    MOST_SERIES,
    SURE,
    Across,
    PlotError,
    Series,
    bar_place,
    cross,
    draw,
    legend,
    name_x,
    new_figure,
)
from results.store.sweeps import Sweep, key_names

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST = 4
"""Figures that are drawn unasked."""
MOST_WHY = 24
"""Characters of an error that are shown."""


def sweep(name: str, keys: Sequence[str], points: Sequence[Mapping[str, Any]], figures: Sequence[str]) -> list[Figure]:
    """A panel for each of the figures; points that failed are crosses, and leave a gap. Seeds are averaged over, unless
    they are all that is swept.

    Lines and panels that one picture has no room for are in further ones.
    """
    keys = [key for key in keys if key != REPLICATE] or keys
    across = Across([p[keys[0]] for p in points])
    called = _names(keys[1:], points)
    labels = list(dict.fromkeys(called))
    made = []
    for first in range(0, len(labels), MOST_SERIES):
        here = labels[first : first + MOST_SERIES]
        shown = [(p, here.index(label)) for p, label in zip(points, called, strict=True) if label in here]
        for above in range(0, len(figures), MOST_PANELS):
            some = figures[above : above + MOST_PANELS]
            lines = [_series(here, shown, keys[0], what) for what in some]
            sure = any(one.sure for of in lines for one in of)
            figure, every = new_figure(f"{name}: {SURE}" if sure else name, len(some), 2.8)
            for axes, what, of in zip(every, some, lines, strict=True):
                draw(axes, across, of)
                _crosses(axes, across, keys[0], shown, len(here))
                axes.set_ylabel(textwrap.fill(figure_label(what), 26))
            name_x(every, keys[0])
            legend(figure)
            made.append(figure)
    return made


def figures_of(swept: Sweep) -> list[str]:
    """The names of the figures that its points have."""
    numbers = (k for p in swept.points for k, v in p.items() if isinstance(v, int | float) and k not in swept.keys)
    return list(dict.fromkeys(numbers))


def usual(swept: Sweep) -> list[str]:
    """What is drawn if nothing is asked for: goodput, or the bus bandwidth of each algorithm. Raises PlotError."""
    known = figures_of(swept)
    chosen = ["goodput_Gbps"] if "goodput_Gbps" in known else [k for k in known if k.startswith("busbw_GBps")][:MOST]
    if not chosen and not known:
        raise PlotError("all points of this sweep have failed")
    return chosen or known[:1]


def _series(labels: Sequence[str], shown: Sequence[tuple[Mapping[str, Any], int]], key: str, what: str) -> list[Series]:
    """A line for each label; `shown` are the points, with the number of their line."""
    series = [Series(label, colour=k) for k, label in enumerate(labels)]
    for k, one in enumerate(series):
        draws: dict[str, tuple[Any, list[float]]] = {}
        for point in (point for point, of in shown if of == k):
            its = draws.setdefault(repr(point[key]), (point[key], []))[1]
            its += [] if "error" in point or point.get(what) is None else [float(point[what])]
        failed = {repr(point[key]) for point, of in shown if of == k and "error" in point}
        for name, (place, values) in draws.items():
            if values or name in failed:
                one.points.append((place, fmean(values) if values else math.nan))
            if ends := around_mean(values):
                one.sure.append((place, ends))
    return series


def _names(others: Sequence[str], points: Sequence[Mapping[str, Any]]) -> list[str]:
    """What each point's line is called: the values of the other keys."""
    columns = []
    for key, name in key_names(others).items():
        values = {repr(p[key]): p[key] for p in points}
        texts = dict(zip(values, distinct(list(values.values())), strict=True))
        columns.append([f"{name} {texts[repr(p[key])]}" for p in points])
    return [", ".join(parts) for parts in zip(*columns, strict=True)] if columns else [""] * len(points)


def _crosses(axes: Axes, across: Across, key: str, shown: Sequence[tuple[Mapping[str, Any], int]], of: int) -> None:
    """One cross at each place; over numbers all lines that failed there share it."""
    why: dict[float, str] = {}
    for p, k in shown:
        if "error" in p:
            why.setdefault(bar_place(across, p[key], k, of), str(p["error"]))
    for place, error in why.items():
        cross(axes, place, error if len(error) <= MOST_WHY else f"{error[:MOST_WHY]}..")
