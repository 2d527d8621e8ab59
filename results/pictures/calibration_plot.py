"""Times by size as they were measured and as a model has them, and how far they are apart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from results.pictures.drawing import COLOURS, MOST_PANELS, legend, new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class Curve(NamedTuple):
    """Of one number of nodes and GPUs: sizes in bytes, times in us.  `held`: which were not fitted."""

    label: str
    sizes: Sequence[int]
    measured: Sequence[float]
    model: Sequence[float]
    held: Sequence[bool]


def curves(title: str, of: Mapping[str, Sequence[Curve]]) -> Figure:
    """A panel for each collective: points as measured, lines as the model has them; hollow ones were held back."""
    figure, panels = new_figure(title, min(len(of), MOST_PANELS), 3.4)
    for axes, (name, its) in zip(panels, of.items(), strict=False):
        for k, curve in enumerate(its):
            colour = COLOURS[k % len(COLOURS)]
            axes.plot(curve.sizes, curve.model, color=colour, linewidth=1.2, label=f"{curve.label}, model")
            for held in (False, True):
                here = [i for i, one in enumerate(curve.held) if one == held]
                if here:
                    sizes, times = [curve.sizes[i] for i in here], [curve.measured[i] for i in here]
                    axes.plot(
                        sizes, times, "o", color=colour, markersize=4, markerfacecolor="none" if held else colour,
                        label=f"{curve.label}, {'held back' if held else 'measured'}",
                    )  # fmt: skip
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
        axes.set_title(name, fontsize=10)
        axes.set_ylabel("time (us)")
        axes.set_xlabel("size (B)")
    legend(figure)
    return figure


def residuals(title: str, of: Mapping[str, Sequence[tuple[int, float]]]) -> Figure:
    """Model / measured - 1 in percent by size, a colour for each kind."""
    figure, (axes,) = new_figure(title, 1, 3.4)
    for k, (name, points) in enumerate(of.items()):
        sizes, off = [size for size, _ in points], [value for _, value in points]
        axes.plot(sizes, off, "o", color=COLOURS[k % len(COLOURS)], markersize=4, label=name)
    axes.axhline(0.0, color="#888888", linewidth=0.8)
    axes.set_xscale("log", base=2)
    axes.set_xlabel("size (B)")
    axes.set_ylabel("model / measured - 1 (%)")
    legend(figure)
    return figure
