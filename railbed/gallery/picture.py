"""An entry's picture: lines as its paper draws them, or what was published and what came out as bars side by side."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from railbed.gallery.entry import Entry, Made, Value
from results.pictures.drawing import COLOURS, Across, Series, legend, name_x, new_figure, save
from results.pictures.drawing import draw as draw_series

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PUBLISHED, HERE = COLOURS[1], COLOURS[0]
WIDTH = 0.38
"""Of a bar, of the place of both."""


def draw(entry: Entry, made: Made, path: Path) -> None:
    """Writes the same bytes for the same figures."""
    import matplotlib

    with matplotlib.rc_context({"svg.fonttype": "none"}):  # text stays text: a tenth of the size
        units = list(dict.fromkeys(value.unit for value in entry.values))
        figure, panels = new_figure(entry.title, 1 if entry.axes else len(units), height=2.8, share_x=False)
        if entry.axes:
            across = Across([x for curve in made.curves for x, _ in curve.points])
            draw_series(panels[0], across, [Series(c.label, list(c.points), k) for k, c in enumerate(made.curves)])
            name_x(panels, entry.axes[0])
            panels[0].set_ylabel(entry.axes[1])
        else:
            for axes, unit in zip(panels, units, strict=True):
                _bars(axes, [value for value in entry.values if value.unit == unit], made)
                axes.set_ylabel(unit or "ratio")
        legend(figure)
        save([figure], path)


def _bars(axes: Axes, values: Sequence[Value], made: Made) -> None:
    """Of a published band only the band."""
    for side, colour, label in ((-1, PUBLISHED, "published"), (1, HERE, "here")):
        for place, value in enumerate(values):
            band = value.published if isinstance(value.published, tuple) else (0.0, value.published)
            low, high = band if side < 0 else (0.0, made.values[value.about])
            bar = axes.bar(place + side * WIDTH / 2, high - low, WIDTH, low, color=colour, label=label)
            axes.bar_label(bar, [f"{low:.4g} to {high:.4g}" if low else f"{high:.4g}"], fontsize=7, padding=2)
    axes.set_xticks(range(len(values)), [textwrap.fill(value.about, 26) for value in values], fontsize=7)
    axes.set_xlim(-0.6, len(values) - 0.4)
    axes.margins(y=0.15)
    axes.grid(False, axis="x")
