"""Pictures of a search: how its best came down, which keys mattered, and of two aims the front."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from results.figures.summary import figure_label
from results.pictures.drawing import COLOURS, new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def trials(name: str, found: Mapping[str, Any]) -> Figure:
    """`found`: as `testbed tune --json` prints it. Of one aim its trials in turn, of two aims one against the other."""
    whole = [one for one in found["trials"] if one["ended"] == "complete"]
    figure, (axes,) = new_figure(name)
    if len(found["aims"]) == 1:
        _history(axes, whole, found["aims"][0])
    else:
        _front(axes, whole, found)
    return figure


def importance(name: str, shares: Mapping[str, float], figure_name: str) -> Figure:
    """How much each key mattered, 0 to 1 (PED-ANOVA: Watanabe, Bansal, Hutter 2023)."""
    figure, (axes,) = new_figure(name, height=1.2 + 0.35 * len(shares), grid="x")
    keys = sorted(shares, key=lambda key: shares[key])
    axes.barh(keys, [shares[key] for key in keys], color=COLOURS[0])
    axes.set_xlabel(f"share of what {figure_name} varies by")
    return figure


def _history(axes: Axes, trials: Sequence[Mapping[str, Any]], aim: Mapping[str, Any]) -> None:
    numbers, values = [one["trial"] for one in trials], [one["figures"][0] for one in trials]
    so_far = list(accumulate(values, min if aim["least"] else max))
    axes.plot(numbers, values, "o", markersize=3, color=COLOURS[0], label="trial")
    axes.step(numbers, so_far, where="post", color=COLOURS[3], label="best so far")
    axes.axhline(values[0], linestyle=":", color=COLOURS[7], label="as it is")
    axes.set_xlabel("trial")
    axes.set_ylabel(figure_label(aim["figure"]))
    axes.legend(fontsize=8)


def _front(axes: Axes, trials: Sequence[Mapping[str, Any]], found: Mapping[str, Any]) -> None:
    best = [one for number in found["best"] for one in trials if one["trial"] == number]
    for some, marker, colour, label in ((trials, "o", COLOURS[0], "trial"), (best, "s-", COLOURS[3], "front"),
                                        (trials[:1], "D", COLOURS[7], "as it is")):  # fmt: skip
        x, y = ([one["figures"][n] for one in some] for n in (0, 1))
        axes.plot(x, y, marker, markersize=4, color=colour, label=label)
    axes.set_xlabel(figure_label(found["aims"][0]["figure"]))
    axes.set_ylabel(figure_label(found["aims"][1]["figure"]))
    axes.legend(fontsize=8)
