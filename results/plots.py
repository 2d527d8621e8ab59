"""Pictures of a run or a sweep, as SVG or PNG: one function for each kind, in PLOTS.

The colours are Okabe and Ito's, which all kinds of colour vision tell apart.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from results.summary import jain, percentile

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from results.load import Run

COLOURS = ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9", "#F0E442", "#000000")
MOST_LINES = 12
SIZES = ((0, 10e3), (10e3, 100e3), (100e3, 1e6), (1e6, 10e6), (10e6, float("inf")))


class PlotError(ValueError):
    """There is nothing to draw: the text says why."""


def new_figure(title: str, rows: int = 1, height: float = 3.6, grid: bool = True) -> tuple[Figure, list[Axes]]:
    """A figure of `rows` axes, one below the other, in the style of all of them."""
    import matplotlib

    matplotlib.use("Agg")
    from cycler import cycler
    from matplotlib import pyplot

    matplotlib.rcParams["axes.prop_cycle"] = cycler(color=COLOURS)
    matplotlib.rcParams["svg.hashsalt"] = "railbed"  # the same picture from the same run
    figure, axes = pyplot.subplots(rows, 1, figsize=(8, height * rows), sharex=rows > 1, squeeze=False)
    figure.suptitle(title, fontsize=11)
    found = [a[0] for a in axes]
    for one in found:
        if grid:
            one.grid(True, linewidth=0.4, alpha=0.5)
        for side in ("top", "right"):
            one.spines[side].set_visible(False)
    return figure, found


def _steps(axes: Axes, data: pd.DataFrame, value: str, scale: float, end_us: float, **style: Any) -> None:
    times = [*(data["time_ns"] / 1000), end_us]
    values = [*(data[value] / scale), data[value].iloc[-1] / scale]
    axes.plot(times, values, drawstyle="steps-post", linewidth=1.2, **style)


def _end_us(run: Run) -> float:
    return float(run.results["end_ns"].max()) / 1000 if len(run.results) else 0.0


def queue(run: Run) -> Figure:
    """Output queues over time: the ports with the longest ones."""
    depths = run.series("queue_depth")
    if depths.empty:
        raise PlotError("no queue ever had a frame in it when it was sampled")
    depths = depths[depths["node"].isin(run.switches["switch"])]
    figure, (axes,) = new_figure(f"{run.experiment['name']}: output queues of switches")
    longest = depths.groupby(["node", "port", "priority"])["bytes"].max().sort_values(ascending=False)
    end = max(_end_us(run), float(depths["time_ns"].max()) / 1000)
    for node, port, priority in longest.index[:8]:
        one = depths[(depths["node"] == node) & (depths["port"] == port) & (depths["priority"] == priority)]
        _steps(axes, one, "bytes", 1000, end, label=f"{node} port {port} class {priority}")
    ecn = run.experiment["fabric"]["switch"].get("ecn")
    if ecn and ecn.get("kmin"):
        axes.set_title(f"ECN from {ecn['kmin']} to {ecn['kmax']}", fontsize=9)
    axes.set_xlabel("emulated time (us)")
    axes.set_ylabel("queue (KB)")
    axes.legend(fontsize=8)
    return figure


def rate(run: Run) -> Figure:
    """What every queue pair really sends, over time, and how fair that is."""
    import numpy as np

    sent = run.series("qp_sent")
    if sent.empty:
        raise PlotError("no queue pair has sent anything")
    period = float(np.diff(np.unique(sent["time_ns"])).min())
    window = max(period, (sent["time_ns"].max() - sent["time_ns"].min()) / 200)
    edges = np.arange(sent["time_ns"].min() - window, sent["time_ns"].max() + window, window)
    figure, (axes, fair) = new_figure(f"{run.experiment['name']}: rates of queue pairs", rows=2, height=2.8)
    rates = []
    for (rank, qp, peer), one in sent.groupby(["rank", "qp", "peer"]):
        at = np.interp(edges, one["time_ns"], one["bytes"], left=0)
        rates.append(np.diff(at) * 8 / window)
        if len(rates) <= MOST_LINES:
            axes.plot(edges[1:] / 1000, rates[-1], linewidth=1.1, label=f"{rank} -> {peer} (QP {qp})")
    index = [jain([r for r in column if r > 0]) if (column > 0).any() else np.nan for column in np.array(rates).T]
    fair.plot(edges[1:] / 1000, index, color=COLOURS[7], linewidth=1.1)
    axes.set_ylabel("payload rate (Gb/s)")
    fair.set_ylabel("Jain's index\nof those that send")
    fair.set_ylim(0, 1.05)
    fair.set_xlabel("emulated time (us)")
    if len(rates) <= MOST_LINES:
        axes.legend(fontsize=7, ncols=2)
    return figure


def pauses(run: Run) -> Figure:
    """Who was paused by whom, and when."""
    edges = run.series("pauses")
    if edges.empty:
        raise PlotError("nobody was ever paused")
    figure, (axes,) = new_figure(
        f"{run.experiment['name']}: pauses", height=1.2 + 0.28 * edges.groupby(["node", "port"]).ngroups
    )
    end = max(_end_us(run) * 1000, float(edges["time_ns"].max()))
    names: list[str] = []
    for (node, port, by, priority), one in edges.groupby(["node", "port", "by", "priority"], sort=False):
        begun, spans = None, []
        for time_ns, on in zip(one["time_ns"], one["on"], strict=True):
            if on and begun is None:
                begun = time_ns
            elif not on and begun is not None:
                spans.append((begun / 1000, (time_ns - begun) / 1000))
                begun = None
        if begun is not None:
            spans.append((begun / 1000, (end - begun) / 1000))
        axes.broken_barh(spans, (len(names) - 0.4, 0.8), color=COLOURS[int(str(priority)) % len(COLOURS)])
        names.append(f"{node}:{port} paused by {by} (class {priority})")
    axes.set_yticks(range(len(names)), names, fontsize=7)
    axes.invert_yaxis()
    axes.set_xlabel("emulated time (us)")
    return figure


def fct(run: Run) -> Figure:
    """Slowdown of flows by size: median, 95th and 99th percentile."""
    flows = run.results[run.results["kind"] == "flow"].dropna(subset=["slowdown"])
    if flows.empty:
        raise PlotError("this run has no flows")
    figure, (axes,) = new_figure(f"{run.experiment['name']}: slowdown of {len(flows)} flows by size")
    labels, columns = [], []
    for low, high in SIZES:
        inside = flows[(flows["size_bytes"] >= low) & (flows["size_bytes"] < high)]
        if len(inside):
            labels.append(f"{_bytes(low)} .. {_bytes(high)}\n{len(inside)} flows")
            columns.append([percentile(list(inside["slowdown"]), share) for share in (0.5, 0.95, 0.99)])
    for k, name in enumerate(("median", "95 %", "99 %")):
        axes.plot(labels, [c[k] for c in columns], marker="os^"[k], label=name)
    axes.set_yscale("log")
    for formatter in (axes.yaxis.set_major_formatter, axes.yaxis.set_minor_formatter):
        formatter("{x:g}")
    axes.set_ylabel("slowdown (time / time alone)")
    axes.set_xlabel("payload of the flow")
    axes.legend(fontsize=8)
    return figure


def _bytes(n: float) -> str:
    if n == float("inf"):
        return "more"
    return f"{n / 1e6:g} MB" if n >= 1e6 else f"{n / 1e3:g} KB" if n else "0"


@dataclass(frozen=True)
class Plot:
    """A kind of picture of a run."""

    name: str
    summary: str
    draw: Callable[[Any], Any]
    sampled: bool  # needs measure.sample


PLOTS = {
    p.name: p
    for p in (
        Plot("queue", "output queues of switches over time", queue, True),
        Plot("rate", "rate of every queue pair over time, and fairness", rate, True),
        Plot("pauses", "who was paused by whom, and when", pauses, True),
        Plot("fct", "slowdown of flows by size", fct, False),
    )
}


def sweep(name: str, keys: Sequence[str], points: Sequence[Mapping[str, Any]], figures: Sequence[str]) -> Figure:
    """Figures of a sweep over its first key, a line for each value of the others; failed points are crosses at 0."""
    figure, every = new_figure(name, rows=len(figures), height=2.8)
    x_key, others = keys[0], keys[1:]
    xs = list(dict.fromkeys(str(p[x_key]) for p in points))
    numbers = all(isinstance(p[x_key], int | float) for p in points)
    for axes, what in zip(every, figures, strict=True):
        lines: dict[str, list[tuple[Any, Any]]] = {}
        for p in points:
            label = ", ".join(f"{k.rpartition('.')[2]} {short(p[k])}" for k in others)
            place = p[x_key] if numbers else str(p[x_key])
            if "error" in p:
                axes.plot([place], [0], marker="x", color=COLOURS[3], markersize=9)
                axes.annotate(
                    str(p["error"]).partition(":")[0], (place, 0), fontsize=7, xytext=(4, 6), textcoords="offset points"
                )
            elif p.get(what) is not None:
                lines.setdefault(label, []).append((place, p[what]))
        for label, values in lines.items():
            axes.plot([v[0] for v in values], [v[1] for v in values], marker="o", markersize=4, label=label or None)
        axes.set_ylabel(what)
        if others and lines:
            axes.legend(fontsize=7, ncols=2)
    places = [p[x_key] for p in points]
    if numbers and min(places) > 0 and max(places) / min(places) >= 30:
        every[-1].set_xscale("log")
    every[-1].set_xlabel(x_key)
    if not numbers:
        every[-1].set_xticks(range(len(xs)), [short(x) for x in xs], rotation=20, fontsize=8)
    return figure


def short(value: Any) -> str:
    """A value of the experiment as it fits a label."""
    text = next(iter(value)) if isinstance(value, dict) and len(value) == 1 else str(value)
    return text if len(text) <= 28 else text[:27] + ".."


def save(figure: Figure, path: Path) -> None:
    """As the ending of `path` says: .svg or .png."""
    from matplotlib import pyplot

    figure.tight_layout()
    figure.savefig(path, dpi=130, metadata={"Date": None} if path.suffix == ".svg" else None)
    pyplot.close(figure)
