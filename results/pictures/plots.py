"""Pictures of one run: one function for each kind, in PLOTS."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from results.figures.values import percentile
from results.pictures.drawing import COLOURS, PlotError, legend, log_axis, new_figure
from results.pictures.rate_plot import rate

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from results.store.load import Run

MOST_QUEUES = 8
MOST_PAUSED = 40
THRESHOLDS_WITHIN = 3.0
"""Thresholds of up to so many times the longest queue are drawn as lines."""
SIZES = ((0, 10e3), (10e3, 100e3), (100e3, 1e6), (1e6, 10e6), (10e6, math.inf))


def _end_us(run: Run, data: pd.DataFrame) -> float:
    ended = float(run.results["end_ns"].max()) if len(run.results) else 0.0
    return max(ended, float(data["time_ns"].max())) / 1000


def _emulated_time(axes: Axes, end_us: float) -> None:
    axes.set_xlim(0, end_us * 1.01 or 1)
    axes.set_xlabel("emulated time (us)")


def queue(run: Run) -> Figure:
    """Output queues over time: the ports with the longest ones, and where ECN begins and ends in them."""
    depths = run.series("queue_depth")
    depths = depths[depths["node"].isin(run.switches["switch"])]
    if depths.empty:
        raise PlotError("no queue of a switch ever had a frame in it when it was sampled")
    longest = depths.groupby(["node", "port", "priority"])["bytes"].max().sort_values(ascending=False)
    drawn = list(longest.index[:MOST_QUEUES])
    some = f": the {len(drawn)} longest of {len(longest)}" if len(drawn) < len(longest) else ""
    figure, (axes,) = new_figure(f"{run.name}: output queues of switches{some}")
    end = _end_us(run, depths)
    for k, (node, port, priority) in enumerate(drawn):
        one = depths[(depths["node"] == node) & (depths["port"] == port) & (depths["priority"] == priority)]
        times = [0.0, *(one["time_ns"] / 1000), end]
        values = [0.0, *(one["bytes"] / 1000), one["bytes"].iloc[-1] / 1000]
        thicker = max(min(len(drawn), 4) - 1 - k, 0)  # where queues are alike, all of them are seen
        axes.plot(times, values, drawstyle="steps-post", linewidth=1.2 + thicker, color=COLOURS[k % len(COLOURS)],
                  label=f"{node}:{port} class {priority}")  # fmt: skip
    _ecn(axes, run, set(drawn), float(longest.max()) / 1000)
    axes.set_ylim(bottom=0)
    axes.set_ylabel("queue (KB)")
    _emulated_time(axes, end)
    legend(figure)
    return figure


def _ecn(axes: Axes, run: Run, drawn: set[tuple[str, int, int]], highest: float) -> None:
    """Thresholds of the queues that are drawn: lines, but for those so far above that the queues would lie flat."""
    here = [m for m in run.thresholds.get("ecn", ()) if (m["node"], m["port"], m["priority"]) in drawn]
    both = all(m["kmin_bytes"] == m["kmax_bytes"] for m in here)
    above = []
    for name, dashes in (("kmin", (6, 3)), ("kmax", (2, 2))):
        called = "threshold" if both else name.capitalize()
        for at in sorted({m[f"{name}_bytes"] / 1000 for m in here}):
            if both and name == "kmax":
                continue
            if at <= THRESHOLDS_WITHIN * highest:
                axes.axhline(at, color=COLOURS[7], linewidth=1, dashes=dashes, label=f"ECN {called} {at:g} KB")
            else:
                above.append(f"{called} {at:g} KB")
    if above:
        axes.set_title(f"above the picture: ECN {', '.join(above)}", fontsize=8, loc="right")


def pauses(run: Run) -> Figure:
    """Pauses over time: which node paused which."""
    edges = run.series("pauses")
    if edges.empty:
        raise PlotError("nobody was ever paused")
    end_us = _end_us(run, edges)
    rows = []
    for (node, port, by, priority), one in edges.groupby(["node", "port", "by", "priority"], sort=False):
        spans = _spans(one, end_us)
        rows.append((f"{node}:{port} by {by}", int(str(priority)), spans))
    longest = sorted(rows, key=lambda row: -sum(length for _, length in row[2]))[:MOST_PAUSED]
    some = f": the {MOST_PAUSED} of {len(rows)} that waited longest" if len(longest) < len(rows) else ""
    rows = sorted((row for row in rows if row in longest), key=lambda row: _natural(row[0]))
    figure, (axes,) = new_figure(f"{run.name}: who was paused, by whom{some}", 1, 1.2 + 0.28 * len(rows), "x")
    named: set[int] = set()
    for k, (_, priority, spans) in enumerate(rows):
        label = None if priority in named else f"class {priority}"
        named.add(priority)
        axes.broken_barh(spans, (k - 0.4, 0.8), color=COLOURS[priority % len(COLOURS)], label=label)
    axes.set_yticks(range(len(rows)), [name for name, _, _ in rows], fontsize=7)
    axes.set_ylim(len(rows) - 0.4, -0.6)
    _emulated_time(axes, end_us)
    legend(figure)
    return figure


def _spans(edges: pd.DataFrame, end_us: float) -> list[tuple[float, float]]:
    """Begin and length of each pause, in us; one that has no end lasts until the run's."""
    begun, spans = None, []
    for time_ns, on in zip(edges["time_ns"], edges["on"], strict=True):
        if on and begun is None:
            begun = time_ns / 1000
        elif not on and begun is not None:
            spans.append((begun, time_ns / 1000 - begun))
            begun = None
    return [*spans, (begun, end_us - begun)] if begun is not None else spans


def _natural(text: str) -> list[Any]:
    """h2 before h10."""
    return [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", text)]


def fct(run: Run) -> Figure:
    """Slowdown of flows by size: median, 95th and 99th percentile."""
    flows = run.results[run.results["kind"] == "flow"].dropna(subset=["slowdown"])
    if flows.empty:
        raise PlotError("this run has no flows")
    figure, (axes,) = new_figure(f"{run.name}: slowdown of {len(flows)} flows by size")
    labels, columns = [], []
    for low, high in SIZES:
        inside = flows[(flows["size_bytes"] >= low) & (flows["size_bytes"] < high)]
        if len(inside):
            labels.append(f"{_bin(low, high)}\n{len(inside)} flow{'s' * (len(inside) > 1)}")
            columns.append([percentile(list(inside["slowdown"]), share) for share in (0.5, 0.95, 0.99)])
    for k, column in enumerate(columns):
        axes.plot([k, k], [column[0], column[2]], color="0.7", linewidth=1, zorder=1)
    for k, name in enumerate(("median", "95th percentile", "99th percentile")):
        axes.plot(range(len(columns)), [c[k] for c in columns], linestyle="", marker="os^"[k], markersize=9 - 1.5 * k,
                  color=COLOURS[k], label=name)  # fmt: skip
    low, high = min(c[0] for c in columns), max(c[2] for c in columns)
    if high / min(low, 1) >= 30:
        axes.set_ylim(min(low, 1) / 1.1, high * 1.3)
        log_axis(axes)
    else:
        axes.set_ylim(0, high * 1.1)
    axes.axhline(1, color=COLOURS[7], linewidth=0.8, linestyle="--", label="as fast as alone")
    axes.set_xticks(range(len(columns)), labels, fontsize=8)
    axes.set_xlim(-0.6, len(columns) - 0.4)
    axes.grid(False, axis="x")
    axes.set_ylabel("slowdown (time / time alone)")
    axes.set_xlabel("payload of the flow")
    legend(figure)
    return figure


def _bin(low: float, high: float) -> str:
    if high == math.inf:
        return f"{_bytes(low)} and more"
    return f"{_bytes(low)} to {_bytes(high)}" if low else f"below {_bytes(high)}"


def _bytes(n: float) -> str:
    return f"{n / 1e6:g} MB" if n >= 1e6 else f"{n / 1e3:g} KB"


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
