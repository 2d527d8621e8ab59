"""Pictures of several algorithms, over one or several runs and sweeps: one function for each kind, in COMPARISONS.

Whatever differs besides the axis has a line each or, if these are too many, a panel. If one picture has no room for
all, there are several.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from results.figures.keys import raw
from results.pictures.comparison import COLUMNS, TOPOLOGY, Data, plain
from results.pictures.drawing import (
    COLOURS,
    MOST_PANELS,
    MOST_SERIES,
    SURE,
    Across,
    PlotError,
    Series,
    draw,
    legend,
    log_axis,
    name_x,
    new_figure,
)

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_LABELS = {"size_bytes": "size", "ranks": "ranks", "algorithm": "algorithm"}
Draw = Callable[[Data, str | None, str | None], list[Any]]


def speedup(data: Data, baseline: str | None, over: str | None) -> list[Figure]:
    """How many times as fast as the baseline each algorithm is, over sizes or ranks."""
    x = data.column(over or "size")
    ratios, baseline = _ratios(data, baseline)
    return _figures(data, ratios, x, "ratio", f"times as fast as {baseline}", f"time of {baseline} / time", even=1)


def _values(figure_name: str, scale: float, title: str, label: str, linear: bool = False) -> Draw:
    """The picture of a figure over a swept key (of several: the first of numbers), sizes or ranks."""

    def values(data: Data, _baseline: str | None, over: str | None) -> list[Figure]:
        means = data.means.dropna(subset=[figure_name])
        if means.empty:
            raise PlotError(f"these runs say nothing of {title}")
        numbers = [k for k in data.keys if data.across(k).numbers] if figure_name == "time_ns" else []
        x = data.column(over or (numbers[0] if numbers else "size"))
        return _figures(data, means.assign(value=means[figure_name] / scale), x, "value", title, label, linear=linear)

    return values


def heat(data: Data, baseline: str | None, over: str | None) -> list[Figure]:
    """Speed-up over the baseline as a map: ranks (or what is asked for) down, sizes across, a panel per algorithm."""
    import numpy as np

    ratios, baseline = _ratios(data, baseline)
    down = data.column(over or (TOPOLOGY if TOPOLOGY in data.dimensions() else "ranks"))
    if down == "size_bytes":
        raise PlotError("sizes stand across the map: draw it over ranks, or a swept key")
    apart = [d for d in data.dimensions(down, "size_bytes") if d in ratios]
    rows, columns = data.across(down, ratios), data.across("size_bytes", ratios)
    ratios = data.over_seeds(ratios, "ratio", down)
    spread = max(abs(np.log2(ratios["ratio"])).max(), 0.01)
    figures = []
    for figure, panels in _pages(f"{data.title}: times as fast as {baseline}", ratios, apart,
                                 0.9 + 0.3 * len(rows.places), "none"):  # fmt: skip
        for axes, (values, panel) in panels:
            cells = zip(panel[down], panel["size_bytes"], panel["ratio"], strict=True)
            _map(axes, rows, columns, [(_place(rows, at), _place(columns, size), r) for at, size, r in cells], spread)
            axes.set_ylabel(_label(down))
            axes.set_title(data.named(apart, values), fontsize=9)
        name_x([axes for axes, _ in panels], "size")
        figures.append(figure)
    return figures


def _map(axes: Axes, rows: Across, columns: Across, cells: Sequence[tuple[float, float, float]], spread: float) -> None:
    """Ratios by row and column, coloured up to 2^spread and down to its inverse; each is written in its cell."""
    import matplotlib
    import numpy as np

    order = [sorted(one.places).index for one in (rows, columns)]
    table = np.full((len(rows.places), len(columns.places)), np.nan)
    for row, column, ratio in cells:
        table[order[0](row), order[1](column)] = ratio
    axes.imshow(np.log2(table), cmap=matplotlib.colormaps["PuOr_r"], vmin=-spread, vmax=spread, aspect="auto")
    for (i, j), ratio in np.ndenumerate(table):
        if not np.isnan(ratio):
            dark = abs(np.log2(ratio)) > 0.7 * spread
            axes.text(j, i, f"{ratio:.2f}", ha="center", va="center", fontsize=8, color="w" if dark else "k")
    axes.set_xticks(range(len(columns.places)), _in_order(columns), fontsize=8)
    axes.set_yticks(range(len(rows.places)), _in_order(rows), fontsize=8)


def _place(across: Across, value: Any) -> float:
    return across.place(raw(plain(value)))


def _in_order(across: Across) -> list[str]:
    return [text for _, text in sorted(zip(across.places, across.labels, strict=True))]


def _figures(
    data: Data,
    frame: pd.DataFrame,
    x: str,
    y: str,
    title: str,
    label: str,
    even: float | None = None,
    linear: bool = False,
) -> list[Figure]:
    """Lines over numbers; over categories bars in the colours of algorithms, a panel for each of what else differs."""
    frame = data.over_seeds(frame, y, x)
    across = data.across(x, frame)
    others = [d for d in data.dimensions(x) if d in frame]
    title += f", {SURE}" if frame["sure"].notna().any() else ""
    apart, of_lines = _shared_out(frame, others) if across.numbers else (others[1:], others[:1])
    lines = _groups(frame, of_lines)
    figures = []
    for first in range(0, len(lines), MOST_SERIES):
        here = {data.named(of_lines, values): rows for values, rows in lines[first : first + MOST_SERIES]}
        looks = _looks({name: str(rows["algorithm"].iloc[0]) for name, rows in here.items()}, "algorithm" in of_lines)
        drawn = frame.loc[[n for rows in here.values() for n in rows.index]].sort_index()
        height = 3.6 if across.numbers or not apart else 2.8
        for figure, panels in _pages(f"{data.title}: {title}", drawn, apart, height):
            for axes, (values, panel) in panels:
                made = {data.named(of_lines, v): rows for v, rows in _groups(panel, of_lines)}
                draw(axes, across, [Series(n, _points(r, x, y), *looks[n], _sure(r, x)) for n, r in made.items()])
                if even is not None:
                    axes.axhline(even, color=COLOURS[7], linewidth=0.8, linestyle="--")
                if across.numbers and even is not None and frame[y].max() / frame[y].min() > 8:
                    log_axis(axes)
                if linear:
                    axes.set_yscale("linear")
                    tops = [*panel[y], *(ends[1] for _, ends in _sure(panel, x))]
                    axes.set_ylim(0, max(tops) * 1.08 or 1)
                axes.set_title(data.named(apart, values), fontsize=9)
                axes.set_ylabel(textwrap.fill(label, 30))
            name_x([axes for axes, _ in panels], _label(x))
            legend(figure)
            figures.append(figure)
    return figures


def _shared_out(frame: pd.DataFrame, keys: Sequence[str]) -> tuple[list[str], list[str]]:
    """The keys that have panels, and those that have lines: panels only where lines alone would be too many."""
    apart: list[str] = []
    lines = list(keys)
    while len(lines) > 1 and len(_groups(frame, lines)) > MOST_SERIES:
        apart.append(next(key for key in lines if key != "algorithm"))
        groups = frame.groupby(apart, sort=False, dropna=False)
        apart += [key for key in lines if key not in apart and groups[key].nunique(dropna=False).max() == 1]
        lines = [key for key in lines if key not in apart]
    return apart, lines


def _groups(frame: pd.DataFrame, keys: Sequence[str]) -> list[tuple[Any, pd.DataFrame]]:
    """The rows by their values of the keys, in the order in which these come."""
    return list(frame.groupby(list(keys), sort=False, dropna=False)) if keys else [((), frame)]


def _looks(algorithms: dict[str, str], by_algorithm: bool) -> dict[str, tuple[int, int]]:
    """Colour and style of each line of a picture: its colour is its algorithm's, unless there is only one."""
    known = list(dict.fromkeys(algorithms.values()))
    looks: dict[str, tuple[int, int]] = {}
    for k, (name, algorithm) in enumerate(algorithms.items()):
        colour = known.index(algorithm) if by_algorithm and len(known) > 1 else k
        looks[name] = colour, sum(colour == other for other, _ in looks.values())
    return looks


def _points(rows: pd.DataFrame, x: str, y: str) -> list[tuple[Any, float]]:
    return [(raw(plain(a)), float(b)) for a, b in zip(rows[x], rows[y], strict=True)]


def _sure(rows: pd.DataFrame, x: str) -> list[tuple[Any, tuple[float, float]]]:
    return [(raw(plain(at)), ends) for at, ends in zip(rows[x], rows["sure"], strict=True) if isinstance(ends, tuple)]


def _pages(
    title: str, frame: pd.DataFrame, apart: Sequence[str], height: float, grid: str = "both"
) -> Iterator[tuple[Figure, list[tuple[Axes, tuple[Any, pd.DataFrame]]]]]:
    """Figures with one pair of axes for each combination of values, and the rows for each."""
    parts = _groups(frame, apart)
    for first in range(0, len(parts), MOST_PANELS):
        here = parts[first : first + MOST_PANELS]
        figure, every = new_figure(title, len(here), height, grid)
        yield figure, list(zip(every, here, strict=True))


def _ratios(data: Data, baseline: str | None) -> tuple[pd.DataFrame, str]:
    """Rows of all algorithms but the baseline, with `ratio`: the baseline's time over theirs, all else the same."""
    there = list(data.means["algorithm"].unique())
    baseline = baseline or there[0]
    if baseline not in there:
        raise PlotError(f"{baseline} was not run; there is {', '.join(there)}")
    if len(there) < 2:
        raise PlotError(f"there is nothing to compare: only {baseline} was run")
    swept = [k for k in data.keys if k not in data.dimensions("algorithm")]  # perhaps the algorithm, by its key
    same = [k for k in (*COLUMNS, *data.keys) if k != "algorithm" and k not in swept]
    base = data.means[data.means["algorithm"] == baseline][[*same, "time_ns"]]
    others = data.means[data.means["algorithm"] != baseline].drop(columns=swept)
    joined = others.merge(base, on=same, suffixes=("", "_base"))
    if joined.empty:
        apart = [_label(k) for k in data.dimensions("algorithm") if k != "size_bytes"]
        differ = f": what differs is {', '.join(apart)}" if apart else ""
        raise PlotError(f"nothing was run both with {baseline} and without, all else the same{differ}")
    return joined.assign(ratio=joined["time_ns_base"] / joined["time_ns"]), baseline


def _label(column: str) -> str:
    return _LABELS.get(column, column)


@dataclass(frozen=True)
class Comparison:
    """A kind of picture of several algorithms: `draw(data, baseline, over)`, both None for what is usual.

    It gives one figure, or several if one has no room for all.
    """

    name: str
    summary: str
    draw: Draw
    baseline: bool = False  # compares with one


COMPARISONS = {
    c.name: c
    for c in (
        Comparison("speedup", "times as fast as a baseline, by size or ranks", speedup, True),
        Comparison("heat", "the same as a map: ranks by sizes", heat, True),
        Comparison(
            "times", "times by algorithm, over a swept key (a loss rate), sizes or ranks",
            _values("time_ns", 1e3, "times", "time (us)"),
        ),
        Comparison(
            "busbw", "bus bandwidth by size, or over ranks, a swept key",
            _values("busbw_Bps", 1e9, "bus bandwidth", "bus bandwidth (GB/s)", linear=True),
        ),
        Comparison(
            "host", "host time of a rank, by algorithm",
            _values("host_ns", 1e3, "host time", "host time of a rank (us)"),
        ),
        Comparison(
            "sent", "bytes that a rank sends, by algorithm",
            _values("sent_bytes", 1e6, "bytes on the cable", "sent by a rank (MB)"),
        ),
    )
}  # fmt: skip
