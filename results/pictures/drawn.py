"""What a picture shows, as rows: of each line, bar and field its panel, its name, its place and its value."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from results.pictures.drawing import STROKES

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

HEADS = ("panel", "series", "x", "y")


def write(figures: Sequence[Figure], pictures: Sequence[Path]) -> list[Path]:
    """A CSV file beside each picture."""
    written = []
    for figure, picture in zip(figures, pictures, strict=True):
        rows = [row for axes in figure.axes for row in _rows(axes)]
        path = picture.with_suffix(".csv")
        with path.open("w", newline="") as file:
            csv.writer(file).writerows([HEADS, *rows])
        written.append(path)
    return written


def _rows(axes: Axes) -> Iterator[tuple[Any, ...]]:
    from matplotlib.collections import LineCollection

    panel = " ".join(axes.get_ylabel().split())
    ticks = [(place, tick.get_text()) for place, tick in zip(axes.get_xticks(), axes.get_xticklabels(), strict=False)]
    for line in axes.get_lines():
        for x, y in np.asarray(line.get_xydata()):
            yield panel, _called(line.get_label()), float(x), float(y)
    for strokes in axes.collections:
        label = str(strokes.get_label())
        if isinstance(strokes, LineCollection) and label.startswith(STROKES):
            name = _called(label.removeprefix(STROKES))
            for (x, low), (_, high) in map(np.asarray, strokes.get_segments()):
                yield panel, f"{name}: 95 % from", float(x), float(low)
                yield panel, f"{name}: 95 % to", float(x), float(high)
    for container in axes.containers:
        for bar in container:
            middle = bar.get_x() + bar.get_width() / 2
            yield (
                panel,
                _called(container.get_label()),
                min(ticks, key=lambda t: abs(t[0] - middle))[1],
                bar.get_height(),
            )
    for image in axes.images:
        names = [tick.get_text() for tick in axes.get_yticklabels()]
        for name, values in zip(names, np.asarray(image.get_array()), strict=False):
            for (_, x), value in zip(ticks, values, strict=False):
                yield panel, name, x, float(value)


def _called(label: object) -> str:
    """Matplotlib's own names begin with `_`."""
    return "" if str(label).startswith("_") else " ".join(str(label).split())
