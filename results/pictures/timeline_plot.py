"""The timeline of a step, drawn: a band for each rank, in it a lane for each stream, behind them where time is lost."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from results.figures.timeline import Row, Span, StepTime, communicates, moving_from, picoseconds
from results.figures.trace_events import threads
from results.pictures.drawing import COLOURS, PlotError, legend, new_figure
from results.pictures.styles import style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTH = 11.0
"""Inches, where others have 8."""
MOST_HEIGHT, LEAST_HEIGHT = 13.0, 1.6
LANE, THINNEST = 0.17, 0.045
"""Inches of a lane: with few ranks, and with many."""
GAP = 0.6
"""Between two ranks, in lanes."""
STREAMS_NAMED = 48
"""Up to so many lanes each is named; beyond that only ranks are."""
RASTER_FROM = 20_000
"""Bars: from so many on an SVG would be too large to open."""
_COLOURS = (*(COLOURS[k] for k in (0, 2, 5, 4, 1)), "#7A5195", "#8C564B", COLOURS[6])  # yellow is faint where thin
_HATCHES = ("", "////", "....", "xxxx")
_BARS = 3
"""The z-order of bars: above lines of waiting and what is lost."""
_EXPOSED, _BUBBLE, _WAITS = "#F2A48B", "#D4D4D4", "#6E6E6E"


def timeline(step: StepTime, name: str) -> Figure:
    """One iteration of one step; `name` is the run's. Raises PlotError if there is nothing to draw."""
    if not step.rows or step.span[0] == step.span[1]:
        raise PlotError("no task of this step took any time")
    lanes = _lanes(step.rows)
    inches = max(THINNEST, min(LANE, MOST_HEIGHT / _height(lanes)))
    figure, (axes,) = new_figure(_title(step, name), 1, max(LEAST_HEIGHT, 1.1 + inches * _height(lanes)), "x")
    figure.set_size_inches(WIDTH / 8 * style().width, figure.get_size_inches()[1])
    _lost(axes, step, lanes)
    _bars(axes, step, lanes)
    _name_lanes(axes, lanes)
    axes.set_ylim(_height(lanes) - GAP / 2, -GAP / 2)
    axes.set_xlim(0, _us(step, step.span[1]))
    axes.set_xlabel(f"emulated time of the step (us), which began at {step.span[0] / 1e6:g} us")
    legend(figure)
    return figure


def chosen(steps: Sequence[StepTime], iteration: int | None) -> list[StepTime]:
    """Of each step the iteration asked for, or the last one. Raises PlotError."""
    if not steps:
        raise PlotError("this run has no timeline: its workload has no tasks")
    of_step: dict[int, dict[int, StepTime]] = defaultdict(dict)
    for one in steps:
        of_step[one.step][one.iteration] = one
    if iteration is None:
        return [iterations[max(iterations)] for iterations in of_step.values()]
    picked = [iterations[iteration] for iterations in of_step.values() if iteration in iterations]
    if not picked:
        there = sorted({one.iteration for one in steps})
        raise PlotError(f"there is no iteration {iteration}: there are {there[0]} to {there[-1]}")
    return picked


def _title(step: StepTime, name: str) -> str:
    row = step.row()
    parts = [f"{share} {row[key] / step.time_ns:.1%}" for share, key in _SHARES]
    hidden = "" if row["overlap"] is None else f"; {row['overlap']:.1%} of the communication is hidden"
    slow = f"; rank {row['straggler']} computes {row['straggles']:.2f} x" if row["straggler"] is not None else ""
    where = f"step {step.step}, iteration {step.iteration}"
    return f"{name}: {where}: {step.time_ns / 1000:.6g} us: {', '.join(parts)}{hidden}{slow}"


_SHARES = (("compute", "compute_ns"), ("exposed communication", "exposed_ns"), ("bubble", "bubble_ns"))


def _us(step: StepTime, ps: int) -> float:
    return (ps - step.span[0]) / 1e6


def _lanes(rows: Sequence[Row]) -> dict[tuple[int, str], float]:
    """Where the lane of each rank's stream begins, from the top, counted in lanes."""
    numbers = threads(rows)
    at, lanes = 0.0, {}
    of_rank: dict[int, set[str]] = defaultdict(set)
    for row in rows:
        of_rank[row["rank"]].add(row["stream"])
    for rank in sorted(of_rank):
        for stream in sorted(of_rank[rank], key=numbers.__getitem__):
            lanes[rank, stream] = at
            at += 1
        at += GAP
    return lanes


def _height(lanes: Mapping[tuple[int, str], float]) -> float:
    return max(lanes.values()) + 1 + GAP


def _lost(axes: Axes, step: StepTime, lanes: Mapping[tuple[int, str], float]) -> None:
    """Behind the lanes of each rank: its bubbles, and communication that no compute hides."""
    for name, colour, key in (("bubble", _BUBBLE, "bubble"), ("exposed communication", _EXPOSED, "exposed")):
        label: str | None = name
        for one in step.ranks:
            tops = [top for (rank, _), top in lanes.items() if rank == one.rank]
            spans: list[Span] = getattr(one, key)
            if spans:
                band = min(tops) - GAP / 3, max(tops) - min(tops) + 1 + 2 * GAP / 3
                axes.broken_barh(_drawn(step, spans), band, color=colour, linewidth=0, label=label, zorder=1)
                label = None


def _drawn(step: StepTime, spans: Sequence[Span]) -> list[tuple[float, float]]:
    return [(_us(step, begin), (end - begin) / 1e6) for begin, end in spans]


def _bars(axes: Axes, step: StepTime, lanes: Mapping[tuple[int, str], float]) -> None:
    looks = _looks(step.rows)
    if len(step.rows) > RASTER_FROM:
        axes.set_rasterization_zorder(_BARS + 1)  # all of them in one image
    bars: dict[tuple[str, float], list[Span]] = defaultdict(list)
    waits: dict[float, list[Span]] = defaultdict(list)
    for row, moving in zip(step.rows, moving_from(step.rows), strict=True):
        top = lanes[row["rank"], row["stream"]]
        begun, end = picoseconds(row["start_ns"]), picoseconds(row["end_ns"])
        bars[_kind(row), top].append((moving, end))
        if moving > begun:
            waits[top].append((begun, moving))
    named: set[str] = set()
    inner: dict[str, Any] = {"linewidth": 0.25, "edgecolor": "white", "zorder": _BARS}
    for kind, look in looks.items():
        for (of, top), spans in bars.items():
            if of == kind:
                label = None if kind in named else kind
                named.add(kind)
                axes.broken_barh(_drawn(step, spans), (top + 0.06, 0.88), label=label, **look, **inner)
    for k, (top, spans) in enumerate(waits.items()):
        axes.broken_barh(_drawn(step, spans), (top + 0.44, 0.12), color=_WAITS, linewidth=0, zorder=2,
                         label=None if k else "waits for a send")  # fmt: skip


def _kind(row: Row) -> str:
    return str(row["kind"] or row.get("operation") or ("communication" if communicates(row) else "compute"))


def _looks(rows: Sequence[Row]) -> dict[str, dict[str, Any]]:
    """A colour for each kind, computing ones first; when colours are used up they come again, hatched."""
    computing: dict[str, bool] = {}
    for row in rows:
        kind = _kind(row)
        computing[kind] = computing.get(kind, False) or not communicates(row)
    kinds = sorted(computing, key=lambda k: (not computing[k], k))
    return {
        kind: {"facecolor": _COLOURS[k % len(_COLOURS)], "hatch": _HATCHES[k // len(_COLOURS) % len(_HATCHES)]}
        for k, kind in enumerate(kinds)
    }


def _name_lanes(axes: Axes, lanes: Mapping[tuple[int, str], float]) -> None:
    """Ranks at the left; beside them their streams, if there is room."""
    tops: dict[int, list[float]] = defaultdict(list)
    for (rank, _), top in lanes.items():
        tops[rank].append(top)
    if len(lanes) <= STREAMS_NAMED:
        names = [f"rank {rank}  {s}" if top == tops[rank][0] else s for (rank, s), top in lanes.items()]
        axes.set_yticks([top + 0.5 for top in lanes.values()], names, fontsize=7)
    else:
        middles = [(min(of) + max(of) + 1) / 2 for of in tops.values()]
        axes.set_yticks(middles, [f"rank {rank}" for rank in tops], fontsize=7 if len(tops) <= 32 else 5)
    axes.tick_params(axis="y", length=0)
