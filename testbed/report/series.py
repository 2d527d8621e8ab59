"""What a sampled run shows over time: charts on one shared time axis, as data for the page.

A line is a step function: between two of its points the value is that of the earlier one. Numbers go into the page as
base64 of their bytes, times in 64 bits and values in 32, so that a million samples stay small and are read at once.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from results.pictures.rates import of_pairs
from results.store.folder import StoreError

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
    from numpy.typing import NDArray

    from results.store.load import Run

MOST_LINES = 8
MOST_STRIPS = 16
MOST_POINTS = 400_000
"""Of a chart; with more, each stretch of time keeps its least and its greatest value."""


@dataclass(frozen=True)
class Line:
    """`x` in us, rising; `y` in the chart's unit."""

    name: str
    x: NDArray[np.float64]
    y: NDArray[np.float64]


@dataclass(frozen=True)
class Chart:
    """Lines of one unit, and a word on what was left out; `strips`: one below the other, as many are alike."""

    title: str
    unit: str
    lines: Sequence[Line]
    about: str = ""
    strips: bool = False

    def to_dict(self) -> dict[str, Any]:
        """For the page: all lines at the times of any of them."""
        import numpy as np

        lines, thinned = self.lines, ""
        if sum(len(line.x) for line in lines) > MOST_POINTS:
            lines = [_thinned(line, MOST_POINTS // len(lines)) for line in lines]
            thinned = "thinned: least and greatest value of each stretch of time"
        times = np.unique(np.concatenate([line.x for line in lines]))
        values = [line.y[np.maximum(np.searchsorted(line.x, times, side="right") - 1, 0)] for line in lines]
        return {
            "title": self.title,
            "unit": self.unit,
            "strips": self.strips,
            "about": "; ".join(filter(None, (self.about, thinned))),
            "names": [line.name for line in lines],
            "x": _base64(times, "<f8"),
            "y": [_base64(value, "<f4") for value in values],
        }


def charts(run: Run) -> list[Chart]:
    """Those that have something to show; none of a run that was not sampled."""
    if not_sampled(run) or "measure" not in run.experiment:
        return []
    end = max(float(run.results["end_ns"].max()) if len(run.results) else 0.0, 0.0) / 1000
    all_charts = [chart for make in _CHARTS for chart in make(run, end)]
    return [chart for chart in all_charts if chart.lines]


def _queues(run: Run, end: float) -> Iterator[Chart]:
    data = run.series("queue_depth")
    data = data[data["node"].isin(run.switches["switch"])]
    yield _largest("Output queues of switches", "KB", data, ["node", "port", "priority"], "bytes", 1e3, end)


def _buffers(run: Run, end: float) -> Iterator[Chart]:
    yield _largest("Switches' buffers in use", "KB", run.series("buffer_use"), ["node"], "bytes", 1e3, end)


def _rates(run: Run, _: float) -> Iterator[Chart]:
    import numpy as np

    pairs = of_pairs(run)
    if pairs is None:
        return
    drawn = pairs.slowest[:MOST_STRIPS]
    edges = pairs.edges / 1000
    lines = [Line(pairs.named(who), edges, np.append(pairs.rates[who] / 1e9, 0.0)) for who in drawn]
    some = ["the slowest first", pairs.about, _some(len(drawn), len(pairs.rates), "that are slowest")]
    some += [f"without {pairs.left_out} inside servers"] if pairs.left_out else []
    yield Chart("Payload rate of queue pairs", "Gb/s", lines, "; ".join(filter(None, some)), strips=True)


def _allowed(run: Run, end: float) -> Iterator[Chart]:
    data = run.series("qp_rate")
    changed = data.groupby(["rank", "qp"])["rate_bps"].transform("nunique") > 1  # without control it stands still
    data = data[changed]
    yield _largest("What congestion control allows", "Gb/s", data, ["rank", "qp", "peer"], "rate_bps", 1e9, end)


def _pauses(run: Run, end: float) -> Iterator[Chart]:
    """How many classes of a node's ports were paused at a time: a running sum of begins and ends."""
    data = run.series("pauses")
    lines = []
    for node, rows in data.groupby("node", sort=False):
        change = rows["on"].to_numpy(dtype=float) * 2 - 1
        lines.append(_line(str(node), rows["time_ns"].to_numpy() / 1000, change.cumsum(), end))
    most = sorted(lines, key=lambda line: -float(line.y.sum()))[:MOST_LINES]
    yield Chart("Paused classes of a node's ports", "classes", most, _some(len(most), len(lines), "paused most"))


def _marks(run: Run, end: float) -> Iterator[Chart]:
    yield _largest("Frames marked CE so far", "frames", run.series("marks"), ["node", "port"], "frames", 1.0, end)


_CHARTS: tuple[Callable[[Run, float], Iterator[Chart]], ...] = (_queues, _buffers, _rates, _allowed, _pauses, _marks)


def _largest(title: str, unit: str, data: pd.DataFrame, by: Sequence[str], value: str, per: float, end: float) -> Chart:
    """The lines with the greatest values; those that never leave zero are no lines."""
    peaks = data.groupby(list(by))[value].max()
    peaks = peaks[peaks > 0].sort_values(ascending=False, kind="stable")
    lines = []
    for key in peaks.index[:MOST_LINES]:
        names = key if isinstance(key, tuple) else (key,)
        rows = data[(data[list(by)] == list(names)).all(axis=1)]
        lines.append(_line(_name(by, names), rows["time_ns"].to_numpy() / 1000, rows[value].to_numpy() / per, end))
    return Chart(title, unit, lines, _some(len(lines), len(peaks), "with the highest values"))


def _name(by: Sequence[str], names: Sequence[Any]) -> str:
    if by[0] == "rank":
        return f"rank {names[0]} to {names[2]}, QP {names[1]}"
    place = ":".join(map(str, names[:2]))
    return f"{place} class {names[2]}" if len(names) > 2 else place


def _line(name: str, x: Any, y: Any, end: float) -> Line:
    """From 0, and on to the end of the run."""
    import numpy as np

    if not len(x):
        return Line(name, np.array([0.0, end]), np.zeros(2))
    x, y = np.concatenate(([0.0], x)), np.concatenate(([0.0], y))
    return Line(name, np.append(x, max(end, x[-1])), np.append(y, y[-1]))


def _thinned(line: Line, points: int) -> Line:
    import numpy as np

    if len(line.x) <= points:
        return line
    bounds = np.linspace(0, len(line.x), points // 2 + 1).astype(int)[:-1]
    stretch = np.repeat(np.arange(len(bounds)), np.diff(np.append(bounds, len(line.x))))
    order = np.lexsort((line.y, stretch))
    first = np.searchsorted(stretch[order], np.arange(len(bounds)))
    last = np.append(first[1:], len(order)) - 1
    keep = np.unique(np.concatenate((order[first], order[last], [0, len(line.x) - 1])))
    return Line(line.name, line.x[keep], line.y[keep])


def _some(shown: int, total: int, which: str) -> str:
    return f"the {shown} of {total} {which}" if shown < total else ""


def _base64(values: Any, dtype: str) -> str:
    return base64.b64encode(values.astype(dtype).tobytes()).decode()


def not_sampled(run: Run) -> str:
    """What to say where there is nothing over time."""
    try:
        run.series("queue_depth")
    except StoreError as error:
        return f"{error.what}: {error.hint}" if error.hint else error.what
    return ""
