"""The common style of all pictures: axes whose ticks are the values drawn, lines, bars, legends.

Values that are numbers, with or without a unit, are drawn to scale and joined by lines. All others are categories:
bars from zero, side by side. A legend is below the picture and covers nothing. The colours are Okabe
and Ito's, which all kinds of colour vision tell apart; what coincides stays visible, because later lines are thinner.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from results.figures.values import amounts, distinct, number
from results.pictures.styles import put_on, style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9", "#F0E442", "#000000")
MOST_SERIES = 24
"""Lines in one picture that can still be told apart."""
MOST_PANELS = 12
"""In one picture."""
MOST_IN_A_COLUMN = 6
MOST_BAR_LABELS = 40
_MARKERS = "os^Dv<>P"
_STYLES = ("-", "--", ":", "-.")
_LOG_FROM = 8.0
_TEXT_WIDTH = 0.0125
"""Of a character on an axis, as a share of the axis."""


class PlotError(ValueError):
    """There is nothing to draw: the text says why."""


def new_figure(
    title: str, panels: int = 1, height: float = 3.6, grid: str = "both", share_x: bool = True
) -> tuple[Figure, list[Axes]]:
    """A figure of so many axes, one below the other, or in two columns; `grid`: both, x, y or none."""
    import matplotlib
    from cycler import cycler
    from matplotlib.figure import Figure

    matplotlib.rcParams["axes.prop_cycle"] = cycler(color=COLOURS)
    matplotlib.rcParams["svg.hashsalt"] = "railbed"  # the same picture from the same run
    columns = _columns(panels)
    rows = math.ceil(panels / columns)
    # Not pyplot's: that keeps every figure until it is closed, even if drawing it has failed.
    size = (style().width * (1 if columns == 1 else 1.5), height * rows * style().height)
    figure = Figure(figsize=size, layout="constrained")
    figure.suptitle("\n".join(textwrap.wrap(title, int(90 * style().room))), fontsize=11)
    every = list(figure.subplots(rows, columns, sharex=share_x and panels > 1, squeeze=False).flat)
    for one in every[panels:]:
        one.remove()
    axes = every[:panels]
    for one in axes[-columns:]:  # the lowest of their columns
        one.tick_params(labelbottom=True)
    for one in axes:
        one.set_axisbelow(True)
        if grid != "none":
            one.grid(True, axis=grid, linewidth=0.4, alpha=0.5)
        for side in ("top", "right"):
            one.spines[side].set_visible(False)
    return figure, axes


def _columns(panels: int) -> int:
    return 1 if panels <= MOST_IN_A_COLUMN else 2


def name_x(panels: Sequence[Axes], text: str) -> None:
    """Names the x axis that all of a figure's axes share, where its ticks are labelled."""
    for axes in panels[-_columns(len(panels)) :]:
        axes.set_xlabel(text)


def save(figures: Sequence[Figure], path: Path) -> list[Path]:
    """As the ending of `path` says, in the style; the second one as NAME-2, and so on. Returns what was written."""
    paths = [path.with_stem(f"{path.stem}-{n}") if n > 1 else path for n in range(1, len(figures) + 1)]
    for figure, one in zip(figures, paths, strict=True):
        put_on(figure)
        undated: dict[str, Any] = {".svg": {"metadata": {"Date": None}}, ".pdf": {"metadata": {"CreationDate": None}}}
        figure.savefig(one, dpi=130, **undated.get(one.suffix.lower(), {}))
    return paths


class Across:
    """The values along an axis: numbers where they stand, others side by side in the order in which they came."""

    def __init__(self, values: Sequence[Any], name: Callable[[Any], str] | None = None) -> None:
        self._keys = list(dict.fromkeys(map(repr, values)))
        by_key = {repr(v): v for v in values}
        distinct_values = [by_key[k] for k in self._keys]
        places = amounts(distinct_values)
        self.numbers = places is not None
        self.places = places if places is not None else [float(k) for k in range(len(distinct_values))]
        self.labels = [name(v) for v in distinct_values] if name else distinct_or_number(distinct_values)

    def place(self, value: Any) -> float:
        """Where a value stands."""
        return self.places[self._keys.index(repr(value))]

    def set_ticks(self, axes: Axes) -> None:
        """A tick at each value. Numbers that span a factor of 8 or more get a logarithmic axis."""
        if not self.numbers:
            crowded = len(self.labels) > 6 * style().room  # then in one line each: lines of neighbours would cross
            texts = self.labels if crowded else [textwrap.fill(text, 18) for text in self.labels]
            turned: dict[str, Any] = {"rotation": 35, "ha": "right", "rotation_mode": "anchor"} if crowded else {}
            axes.set_xticks(self.places, texts, fontsize=8, **turned)
            axes.set_xlim(-0.6, len(texts) - 0.4)
            return
        ordered = sorted(zip(self.places, self.labels, strict=True))
        positive = [p for p, _ in ordered if p > 0]
        logarithmic = bool(positive) and ordered[0][0] >= 0 and positive[-1] / positive[0] >= _LOG_FROM
        if logarithmic and len(positive) == len(ordered):
            axes.set_xscale("log")
        elif logarithmic:
            axes.set_xscale("symlog", linthresh=positive[0], linscale=0.5)
        at = [_position(p, positive[0] if logarithmic else None) for p, _ in ordered]
        shown = _that_fit(at, [text for _, text in ordered])
        axes.set_xticks(
            [p for p, _ in ordered], [t if k in shown else "" for k, (_, t) in enumerate(ordered)], fontsize=8
        )
        axes.minorticks_off()
        if len(ordered) == 1 and not logarithmic:
            axes.set_xlim(ordered[0][0] - 1, ordered[0][0] + 1)


def distinct_or_number(values: Sequence[Any]) -> list[str]:
    """Labels of the values: numbers as numbers."""
    if all(isinstance(v, int | float) and not isinstance(v, bool) for v in values):
        return [number(v) for v in values]
    return distinct(values)


def _position(place: float, smallest: float | None) -> float:
    """On the axis, in units of its own; below the smallest positive value it is linear."""
    if smallest is None:
        return place
    return math.log10(place / smallest) + 0.5 if place > 0 else 0.0


def _that_fit(at: Sequence[float], texts: Sequence[str]) -> set[int]:
    """The numbers of the labels that do not touch each other; the first and the last are among them."""
    span = (at[-1] - at[0]) or 1.0

    def touch(a: int, b: int) -> bool:
        return (at[b] - at[a]) / span < (len(texts[a]) + len(texts[b]) + 1) / 2 * _TEXT_WIDTH / style().room

    kept = [0]
    for k in range(1, len(at)):
        if not touch(kept[-1], k):
            kept.append(k)
        elif k == len(at) - 1 and len(kept) > 1:
            kept[-1] = k
    return set(kept)


@dataclass
class Series:
    """One line of a picture: values by their place on the axis, nan where a point has failed; `sure`: how sure those
    are that are means, as an interval (results.figures.draws).

    When the colours are used up they come again, in the next style.
    """

    label: str
    points: list[tuple[Any, float]] = field(default_factory=list)
    colour: int = 0
    style: int = 0
    sure: list[tuple[Any, tuple[float, float]]] = field(default_factory=list)


STROKES = "_sure of "
"""Before a line's name: what matplotlib calls the strokes of how sure it is, which are in no legend."""
SURE = "mean over seeds, with its 95 % interval"
"""What a picture says of lines that have `sure`."""


def draw(axes: Axes, across: Across, series: Sequence[Series]) -> None:
    """Lines over numbers, bars over categories; ticks are the values."""
    if across.numbers:
        _lines(axes, across, series)
    else:
        _bars(axes, across, series)
    across.set_ticks(axes)


def _lines(axes: Axes, across: Across, series: Sequence[Series]) -> None:
    drawn: list[float] = []
    for k, one in enumerate(series):
        points = sorted((across.place(x), y) for x, y in one.points)
        drawn += [y for _, y in points if y == y]
        thicker = max(min(len(series), 4) - 1 - k, 0)
        style = _STYLES[(one.style + one.colour // len(COLOURS)) % len(_STYLES)]
        axes.plot(
            [p[0] for p in points], [p[1] for p in points], label=one.label or None,
            color=COLOURS[one.colour % len(COLOURS)], linestyle=style,
            marker=_MARKERS[(one.colour + one.style) % len(_MARKERS)],
            linewidth=1.2 + 0.6 * thicker, markersize=4 + 1.5 * thicker,
        )  # fmt: skip
        drawn += _sure(axes, [(across.place(x), ends) for x, ends in one.sure], one)
    if drawn and min(drawn) > 0 and max(drawn) / min(drawn) >= 30:
        log_axis(axes)
    elif not drawn or min(drawn) >= 0:
        axes.set_ylim(0, max([*drawn, 0]) * 1.08 or 1)


def _bars(axes: Axes, across: Across, series: Sequence[Series]) -> None:
    width = 0.8 / max(len(series), 1)
    labelled = sum(len(one.points) for one in series) <= MOST_BAR_LABELS * style().room
    tops = [0.0]
    for k, one in enumerate(series):
        points = [(across.place(x) + (k - (len(series) - 1) / 2) * width, y) for x, y in one.points if y == y]
        bars = axes.bar([p[0] for p in points], [p[1] for p in points], width, label=one.label or None,
                        color=COLOURS[(one.colour + one.style) % len(COLOURS)])  # fmt: skip
        tops += [p[1] for p in points]
        aside = (k - (len(series) - 1) / 2) * width
        tops += _sure(axes, [(across.place(x) + aside, ends) for x, ends in one.sure], one)
        if labelled and not one.sure:
            axes.bar_label(bars, labels=[f"{y:.4g}" for _, y in points], fontsize=7, padding=2)
    axes.set_ylim(0, max(tops) * 1.15 or 1)
    axes.grid(False, axis="x")


def _sure(axes: Axes, intervals: Sequence[tuple[float, tuple[float, float]]], of: Series) -> list[float]:
    """A stroke over each interval; its ends."""
    if not intervals:
        return []
    lows, highs = ([ends[k] for _, ends in intervals] for k in (0, 1))
    colour = COLOURS[of.colour % len(COLOURS)] if axes.lines else COLOURS[7]
    strokes = axes.vlines([at for at, _ in intervals], lows, highs, colors=colour, linewidth=1.2, zorder=3)
    strokes.set_label(f"{STROKES}{of.label}")
    return [end for end in (*lows, *highs) if end > 0]


def bar_place(across: Across, value: Any, k: int, of: int) -> float:
    """The middle of the k-th of so many bars at a value."""
    return across.place(value) + (0 if across.numbers else (k - (of - 1) / 2) * 0.8 / max(of, 1))


def cross(axes: Axes, place: float, text: str) -> None:
    """A point that failed: a cross on the axis, and why above it."""
    above = axes.get_xaxis_transform()
    axes.plot([place], [0], marker="x", linestyle="", color=COLOURS[3], markersize=8, transform=above, clip_on=False,
              zorder=5, label="failed")  # fmt: skip
    axes.annotate(text, (place, 0), xycoords=above, fontsize=7, color=COLOURS[3], rotation=90, ha="center", va="bottom",
                  xytext=(0, 7), textcoords="offset points")  # fmt: skip


def log_axis(axes: Axes) -> None:
    """A logarithmic y axis in plain numbers: 1, 2 and 5 of each power of ten, or its powers only."""
    from matplotlib.ticker import LogLocator, NullFormatter, NullLocator

    axes.set_yscale("log")
    low, high = axes.get_ylim()
    few = high / low < 1500
    axes.yaxis.set_major_locator(LogLocator(10, (1.0, 2.0, 5.0) if few else (1.0,), numticks=20))
    axes.yaxis.set_major_formatter("{x:g}")
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_minor_formatter(NullFormatter())


def legend(figure: Figure) -> None:
    """One legend of all axes, below them; the figure grows by what it takes."""
    handles: dict[str, Any] = {}
    for axes in figure.axes:
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            handles.setdefault(label, handle)
    if not handles:
        return
    columns = max(1, min(4, len(handles), int(115 * style().room / (max(map(len, handles)) + 6))))
    width, height = figure.get_size_inches()
    figure.set_size_inches(width, height + (0.1 + 0.19 * math.ceil(len(handles) / columns)) * style().letters)
    figure.legend(
        handles.values(), handles.keys(), loc="outside lower center", ncols=columns, fontsize=8, frameon=False
    )
