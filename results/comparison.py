"""Algorithms compared over one or several runs and sweeps: one frame of means, and pictures of it.

Unlike the pictures of results.plots, these are not of one run: every point of a sweep is in them, with the swept keys
as further columns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from results.load import load
from results.plots import COLOURS, PlotError, new_figure, short
from results.summary import labels
from results.sweeps import sweep

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FIGURES = ("time_ns", "busbw_Bps", "host_ns", "sent_bytes")
_KEYS = ("collective", "algorithm", "dtype", "op", "ranks", "size_bytes")
_LABELS = {
    "size_bytes": "size", "ranks": "ranks", "time_ns": "time (us)", "host_ns": "host time of a rank (us)",
    "sent_bytes": "sent by a rank (MB)",
}  # fmt: skip
_UNITS = {"time_ns": 1e3, "host_ns": 1e3, "sent_bytes": 1e6}
_MARKERS = "os^Dv<>P"
_STYLES = ("-", "--", ":", "-.")
MOST_PANELS = 6


@dataclass(frozen=True)
class Data:
    """`means`: one row per algorithm, size, number of ranks and swept values, its figures means over iterations."""

    title: str
    keys: tuple[str, ...]  # swept ones, by their path in the experiment
    means: pd.DataFrame

    def dimensions(self, *without: str) -> list[str]:
        """What differs between the rows, apart from `without` and from what only says the same in other words."""
        found: list[str] = []
        for key in (*_KEYS, *self.keys):
            if key not in without and self.means[key].nunique(dropna=False) > 1:
                found += [] if any(self._same(key, other) for other in (*without, *found)) else [key]
        return found

    def _same(self, key: str, other: str) -> bool:
        """Do the two tell each other, as the hosts of a star and its ranks do?"""
        pairs = self.means[[key, other]].drop_duplicates()
        return not (pairs[key].duplicated().any() or pairs[other].duplicated().any())

    def column(self, name: str) -> str:
        """A column by its name, by the last part of a swept key, or by `size`. Raises PlotError."""
        known = {"size": "size_bytes", "ranks": "ranks", **{k.rpartition(".")[2]: k for k in self.keys}}
        found = known.get(name, name if name in self.keys else None)
        if found is None:
            raise PlotError(
                f"there is nothing called {name!r} to draw over; there is {', '.join([*known, *self.keys])}"
            )
        return found


def collect(paths: Sequence[Path]) -> Data:
    """The collectives of runs and sweeps. Raises StoreError for what is no run, PlotError without collectives."""
    import pandas as pd

    frames: list[pd.DataFrame] = []
    keys: dict[str, None] = {}
    names: dict[str, None] = {}
    for path, values in chain.from_iterable(map(_points, paths)):
        run = load(path)
        names[run.experiment.get("name", path.name)] = None
        frame = run.results[run.results["kind"] == "collective"]
        if called := labels(run.experiment.get("workload", [])):
            frame = frame.assign(algorithm=[called[step] for step in frame["step"]])
        frames.append(frame.assign(**{k: [_plain(v)] * len(frame) for k, v in values.items()}))
        keys |= dict.fromkeys(values)
    whole = pd.concat(frames, ignore_index=True) if frames else pd.DataFrame()
    if whole.empty:
        raise PlotError("no collective has ended in what there is to draw")
    for key in keys:
        if key not in whole:
            whole[key] = None
    by = [*_KEYS, *keys]
    means = whole.groupby(by, sort=False, dropna=False)[list(FIGURES)].mean().reset_index()
    return Data(", ".join(names), tuple(keys), means)


def _points(path: Path) -> Iterator[tuple[Path, dict[str, Any]]]:
    """The runs in a folder, with the values that were swept over; points that failed are left out."""
    swept = sweep(path)
    if swept is None:
        yield path, {}
        return
    for point in swept.points:
        if "error" not in point:
            yield swept.path / point["run"], swept.values(point)


def _plain(value: Any) -> Any:
    return value if isinstance(value, int | float | str) else short(value) if value else "none"


def speedup(data: Data, baseline: str | None, over: str | None) -> Figure:
    """How many times as fast as the baseline each algorithm is, over sizes or ranks."""
    x = data.column(over or "size")
    ratios, baseline = _ratios(data, baseline)
    figure, (axes,) = new_figure(f"{data.title}: times as fast as {baseline}")
    _lines(axes, data, ratios, x, "ratio", [d for d in data.dimensions(x) if d in ratios])
    axes.axhline(1, color=COLOURS[7], linewidth=0.8, linestyle="--")
    if ratios["ratio"].max() / ratios["ratio"].min() > 8:
        _log(axes)
    axes.set_ylabel(f"time of {baseline} / time")
    return figure


def times(data: Data, baseline: str | None, over: str | None) -> Figure:
    """Times over a swept key (of several: the first that is a number), sizes or ranks."""
    numbers = [k for k in data.keys if _is_number(data.means[k])]
    x = data.column(over or (numbers[0] if numbers else "size"))
    figure, (axes,) = new_figure(f"{data.title}: times")
    means = data.means if baseline is None else data.means[data.means["algorithm"] != baseline]
    _lines(axes, data, means.assign(us=means["time_ns"] / 1e3), x, "us", data.dimensions(x))
    _log(axes)
    axes.set_ylabel("time (us)")
    return figure


def heat(data: Data, baseline: str | None, over: str | None) -> Figure:
    """Speed-up over the baseline as a map: ranks (or what is asked for) down, sizes across, a panel per algorithm."""
    import numpy as np
    from matplotlib import pyplot

    ratios, baseline = _ratios(data, baseline)
    down = data.column(over or "ranks")
    apart = [d for d in data.dimensions(down, "size_bytes") if d in ratios]
    figure, panels = _panels(f"{data.title}: times as fast as {baseline}", ratios, apart, grid=False)
    spread = max(abs(np.log2(ratios["ratio"])).max(), 0.01)
    for axes, (values, panel) in panels:
        table = panel.pivot_table(index=down, columns="size_bytes", values="ratio")
        axes.imshow(np.log2(table), cmap=pyplot.get_cmap("PuOr_r"), vmin=-spread, vmax=spread, aspect="auto")
        for (i, j), ratio in np.ndenumerate(table.to_numpy(dtype=float)):
            if not np.isnan(ratio):
                dark = abs(np.log2(ratio)) > 0.7 * spread
                axes.text(j, i, f"{ratio:.2f}", ha="center", va="center", fontsize=8, color="w" if dark else "k")
        axes.set_xticks(range(len(table.columns)), [_tick("size_bytes", s) for s in table.columns.tolist()])
        axes.set_yticks(range(len(table)), [short(v) for v in table.index.tolist()])
        axes.set_ylabel(_label(down))
        axes.set_title(_named(apart, values), fontsize=9)
    axes.set_xlabel("size")
    return figure


def _panels(
    title: str, frame: pd.DataFrame, apart: Sequence[str], grid: bool = True
) -> tuple[Figure, list[tuple[Axes, tuple[Any, pd.DataFrame]]]]:
    """A figure with axes for each combination of what is to be kept apart, and the rows for each."""
    parts: list[tuple[Any, pd.DataFrame]] = list(frame.groupby(list(apart), sort=False)) if apart else [((), frame)]
    if len(parts) > MOST_PANELS:
        raise PlotError(
            f"{len(parts)} pictures, one for each combination of {', '.join(apart)}: draw fewer runs at once"
        )
    figure, every = new_figure(title, len(parts), height=2.6 if len(parts) > 1 else 3.6, grid=grid)
    return figure, list(zip(every, parts, strict=True))


def _bars(figure_name: str, title: str) -> Callable[[Data, str | None, str | None], Figure]:
    def draw(data: Data, baseline: str | None, over: str | None) -> Figure:
        x = data.column(over or "size")
        means = data.means.dropna(subset=[figure_name])
        if means.empty:
            raise PlotError(f"these runs say nothing of {title}")
        places = sorted(means[x].unique())
        apart = data.dimensions(x, "algorithm")
        figure, panels = _panels(f"{data.title}: {title}", means, apart)
        algorithms = list(dict.fromkeys(means["algorithm"]))
        width = 0.8 / len(algorithms)
        for axes, (values, panel) in panels:
            for k, algorithm in enumerate(algorithms):
                group = panel[panel["algorithm"] == algorithm]
                at = [places.index(v) + (k - (len(algorithms) - 1) / 2) * width for v in group[x]]
                axes.bar(at, group[figure_name] / _UNITS[figure_name], width, label=algorithm, color=_colour(k))
            axes.set_xticks(range(len(places)), [_tick(x, p) for p in places])
            axes.set_title(_named(apart, values), fontsize=9)
            axes.set_ylabel(_LABELS[figure_name])
            _log(axes)
        axes.set_xlabel(_label(x))
        panels[0][0].legend(fontsize=7, ncols=2)
        return figure

    return draw


def _ratios(data: Data, baseline: str | None) -> tuple[pd.DataFrame, str]:
    """Rows of all algorithms but the baseline, with `ratio`: its time over theirs, where all else is the same."""
    there = list(data.means["algorithm"].unique())
    baseline = baseline or there[0]
    if baseline not in there:
        raise PlotError(f"{baseline} was not run; there is {', '.join(there)}")
    if len(there) < 2:
        raise PlotError(f"there is nothing to compare: only {baseline} was run")
    swept = [k for k in data.keys if k not in data.dimensions("algorithm")]  # perhaps the algorithm, by its key
    same = [k for k in (*_KEYS, *data.keys) if k != "algorithm" and k not in swept]
    base = data.means[data.means["algorithm"] == baseline][[*same, "time_ns"]]
    others = data.means[data.means["algorithm"] != baseline].drop(columns=swept)
    joined = others.merge(base, on=same, suffixes=("", "_base"))
    if joined.empty:
        raise PlotError(f"nothing was run both with {baseline} and without")
    return joined.assign(ratio=joined["time_ns_base"] / joined["time_ns"]), baseline


def _lines(axes: Axes, data: Data, frame: pd.DataFrame, x: str, y: str, series: Sequence[str]) -> None:
    groups = list(frame.groupby(list(series), sort=False, dropna=False)) if series else [((), frame)]
    algorithms = list(dict.fromkeys(frame["algorithm"]))
    seen: dict[str, int] = {}  # by colour: an algorithm's, unless there is only one
    for k, (values, group) in enumerate(groups):
        ordered = group.sort_values(x)
        at = ordered[x] if _is_number(frame[x]) else [_tick(x, v) for v in ordered[x]]
        algorithm = str(group["algorithm"].iloc[0])
        colour = _colour(algorithms.index(algorithm) if len(algorithms) > 1 else k)
        style = seen[colour] = seen.get(colour, -1) + 1
        axes.plot(
            at, ordered[y], markersize=4, linewidth=1.2, color=colour, label=_named(series, values) or None,
            marker=_MARKERS[style % len(_MARKERS)], linestyle=_STYLES[style % len(_STYLES)],
        )  # fmt: skip
    axes.set_xlabel(_label(x))
    if _is_number(frame[x]):
        _number_axis(axes, x, sorted(frame[x].unique()))
    _legend(axes)


def _number_axis(axes: Axes, x: str, places: Sequence[float]) -> None:
    """Logarithmic where the values span a factor of 8; from 0 on only up to the smallest."""
    positive = [p for p in places if p > 0]
    if positive and max(positive) / min(positive) >= 8:
        if positive == list(places):
            axes.set_xscale("log", base=10)
        else:
            axes.set_xscale("symlog", linthresh=min(positive))
    axes.set_xticks(list(places), [_tick(x, p) for p in places], fontsize=8)
    axes.minorticks_off()


def _log(axes: Axes) -> None:
    """A logarithmic axis in plain numbers, those between the powers of ten only where there are few of these."""
    axes.set_yscale("log")
    low, high = axes.get_ylim()
    axes.yaxis.set_major_formatter("{x:g}")
    axes.yaxis.set_minor_formatter("{x:g}" if high / low < 30 else "")
    axes.tick_params(axis="y", which="both", labelsize=8)


def _colour(number: int) -> str:
    return COLOURS[number % len(COLOURS)]


def _legend(axes: Axes) -> None:
    if axes.get_legend_handles_labels()[1]:
        axes.legend(fontsize=7, ncols=2)


def _is_number(column: pd.Series[Any]) -> bool:
    return all(isinstance(v, int | float) and not isinstance(v, bool) and v == v for v in column.tolist())


def _named(keys: Sequence[str], values: Any) -> str:
    """`ring, 8 ranks, 1 MiB, rate 0.01`: what a line or panel is of."""
    words = []
    for key, value in zip(keys, values if isinstance(values, tuple) else (values,), strict=True):
        if key == "ranks":
            words.append(f"{value} ranks")
        elif key in _KEYS:
            words.append(_tick(key, value))
        else:
            words.append(f"{key.rpartition('.')[2]} {_tick(key, value)}")
    return ", ".join(words)


def _label(column: str) -> str:
    return _LABELS.get(column, column.rpartition(".")[2])


def _tick(column: str, value: Any) -> str:
    return size_label(value) if column == "size_bytes" else f"{value:g}" if isinstance(value, float) else short(value)


def size_label(size: float) -> str:
    """`64 KiB`, `1.5 MiB`, `1000 B`: the largest binary unit of which it is at least one."""
    for unit, name in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if size >= unit:
            return f"{size / unit:g} {name}" if size % (unit / 4) == 0 else f"{size / unit:.2f} {name}"
    return f"{size:g} B"


@dataclass(frozen=True)
class Comparison:
    """A kind of picture of several algorithms: `draw(data, baseline, over)`, both None for what is usual."""

    name: str
    summary: str
    draw: Callable[[Data, str | None, str | None], Any]


COMPARISONS = {
    c.name: c
    for c in (
        Comparison("speedup", "times as fast as a baseline, by size or ranks", speedup),
        Comparison("heat", "the same as a map: ranks by sizes", heat),
        Comparison("times", "times by algorithm, over a swept key (a loss rate), sizes or ranks", times),
        Comparison("host", "host time of a rank, by algorithm", _bars("host_ns", "host time")),
        Comparison("sent", "bytes that a rank sends, by algorithm", _bars("sent_bytes", "bytes on the cable")),
    )
}
