"""Pictures of several algorithms, over one or several runs and sweeps: one function for each kind, in COMPARISONS."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from results.comparison import COLUMNS, TOPOLOGY, Data, plain, raw
from results.drawing import COLOURS, Across, PlotError, Series, draw, legend, log_axis, new_figure

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_LABELS = {"size_bytes": "size", "ranks": "ranks", "algorithm": "algorithm"}
MOST_PANELS = 6


def speedup(data: Data, baseline: str | None, over: str | None) -> Figure:
    """How many times as fast as the baseline each algorithm is, over sizes or ranks."""
    x = data.column(over or "size")
    ratios, baseline = _ratios(data, baseline)
    return _figure(data, ratios, x, "ratio", f"times as fast as {baseline}", f"time of {baseline} / time", even=1)


def _values(figure_name: str, scale: float, title: str, label: str) -> Callable[[Data, str | None, str | None], Figure]:
    """The picture of a figure over a swept key (of several: the first of numbers), sizes or ranks."""

    def values(data: Data, _baseline: str | None, over: str | None) -> Figure:
        means = data.means.dropna(subset=[figure_name])
        if means.empty:
            raise PlotError(f"these runs say nothing of {title}")
        numbers = [k for k in data.keys if data.across(k).numbers] if figure_name == "time_ns" else []
        x = data.column(over or (numbers[0] if numbers else "size"))
        return _figure(data, means.assign(value=means[figure_name] / scale), x, "value", title, label)

    return values


def heat(data: Data, baseline: str | None, over: str | None) -> Figure:
    """Speed-up over the baseline as a map: ranks (or what is asked for) down, sizes across, a panel per algorithm."""
    import numpy as np
    from matplotlib import pyplot

    ratios, baseline = _ratios(data, baseline)
    down = data.column(over or (TOPOLOGY if TOPOLOGY in data.dimensions() else "ranks"))
    if down == "size_bytes":
        raise PlotError("sizes stand across the map: draw it over ranks, or a swept key")
    apart = [d for d in data.dimensions(down, "size_bytes") if d in ratios]
    rows, columns = data.across(down, ratios), data.across("size_bytes", ratios)
    height = 0.9 + 0.3 * len(rows.places)
    figure, panels = _panels(f"{data.title}: times as fast as {baseline}", ratios, apart, height, "none")
    spread = max(abs(np.log2(ratios["ratio"])).max(), 0.01)
    order = [sorted(one.places).index for one in (rows, columns)]
    for axes, (values, panel) in panels:
        table = np.full((len(rows.places), len(columns.places)), np.nan)
        for at, size, ratio in zip(panel[down], panel["size_bytes"], panel["ratio"], strict=True):
            table[order[0](_place(rows, at)), order[1](_place(columns, size))] = ratio
        axes.imshow(np.log2(table), cmap=pyplot.get_cmap("PuOr_r"), vmin=-spread, vmax=spread, aspect="auto")
        for (i, j), ratio in np.ndenumerate(table):
            if not np.isnan(ratio):
                dark = abs(np.log2(ratio)) > 0.7 * spread
                axes.text(j, i, f"{ratio:.2f}", ha="center", va="center", fontsize=8, color="w" if dark else "k")
        axes.set_xticks(range(len(columns.places)), _in_order(columns), fontsize=8)
        axes.set_yticks(range(len(rows.places)), _in_order(rows), fontsize=8)
        axes.set_ylabel(_label(down))
        axes.set_title(data.named(apart, values), fontsize=9)
    axes.set_xlabel("size")
    return figure


def _place(across: Across, value: Any) -> float:
    return across.place(raw(plain(value)))


def _in_order(across: Across) -> list[str]:
    return [text for _, text in sorted(zip(across.places, across.labels, strict=True))]


def _figure(
    data: Data, frame: pd.DataFrame, x: str, y: str, title: str, label: str, even: float | None = None
) -> Figure:
    """Lines over numbers; over categories bars in the colours of algorithms, a panel for each of what else differs."""
    across = data.across(x, frame)
    others = [d for d in data.dimensions(x) if d in frame]
    coloured = others if across.numbers else others[:1]
    apart = [] if across.numbers else others[1:]
    figure, panels = _panels(f"{data.title}: {title}", frame, apart, 3.6 if across.numbers or not apart else 2.8)
    for axes, (values, panel) in panels:
        draw(axes, across, _series(data, panel, x, y, coloured, frame))
        if even is not None:
            axes.axhline(even, color=COLOURS[7], linewidth=0.8, linestyle="--")
        if across.numbers and even is not None and frame[y].max() / frame[y].min() > 8:
            log_axis(axes)
        axes.set_title(data.named(apart, values), fontsize=9)
        axes.set_ylabel(textwrap.fill(label, 30))
    axes.set_xlabel(_label(x))
    legend(figure)
    return figure


def _series(data: Data, frame: pd.DataFrame, x: str, y: str, keys: Sequence[str], whole: pd.DataFrame) -> list[Series]:
    """A line for each combination of the keys: its colour is the algorithm's, unless there is only one."""
    groups = list(frame.groupby(list(keys), sort=False, dropna=False)) if keys else [((), frame)]
    algorithms = list(dict.fromkeys(whole["algorithm"]))
    by_algorithm = len(algorithms) > 1 and "algorithm" in keys
    styles: dict[int, int] = {}
    made = []
    for k, (values, group) in enumerate(groups):
        colour = algorithms.index(group["algorithm"].iloc[0]) if by_algorithm else k
        styles[colour] = styles.get(colour, -1) + 1
        points = [(raw(plain(a)), float(b)) for a, b in zip(group[x], group[y], strict=True)]
        made.append(Series(data.named(keys, values), points, colour, styles[colour]))
    return made


def _panels(
    title: str, frame: pd.DataFrame, apart: Sequence[str], height: float, grid: str = "both"
) -> tuple[Figure, list[tuple[Axes, tuple[Any, pd.DataFrame]]]]:
    """A figure with axes for each combination of what is to be kept apart, and the rows for each."""
    parts: list[tuple[Any, pd.DataFrame]] = (
        list(frame.groupby(list(apart), sort=False, dropna=False)) if apart else [((), frame)]
    )
    if len(parts) > MOST_PANELS:
        of = ", ".join(map(_label, apart))
        raise PlotError(f"{len(parts)} panels, one for each combination of {of}: draw fewer runs at once")
    figure, every = new_figure(title, len(parts), height, grid)
    return figure, list(zip(every, parts, strict=True))


def _ratios(data: Data, baseline: str | None) -> tuple[pd.DataFrame, str]:
    """Rows of all algorithms but the baseline, with `ratio`: its time over theirs, where all else is the same."""
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
    """A kind of picture of several algorithms: `draw(data, baseline, over)`, both None for what is usual."""

    name: str
    summary: str
    draw: Callable[[Data, str | None, str | None], Any]
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
            "host", "host time of a rank, by algorithm",
            _values("host_ns", 1e3, "host time", "host time of a rank (us)"),
        ),
        Comparison(
            "sent", "bytes that a rank sends, by algorithm",
            _values("sent_bytes", 1e6, "bytes on the cable", "sent by a rank (MB)"),
        ),
    )
}  # fmt: skip
