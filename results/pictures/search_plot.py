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


def search(name: str, found: Mapping[str, Any], importance: Mapping[str, float]) -> list[Figure]:
    """`found`: as `testbed tune --json` prints it. `importance`: of each key, 0 to 1; none if it cannot be told."""
    whole = [one for one in found["trials"] if one["ended"] == "complete"]
    made = []
    figure, (axes, *more) = new_figure(name, 1 + bool(importance), 2.8)
    if len(found["aims"]) == 1:
        _history(axes, whole, found["aims"][0])
    else:
        _front(axes, whole, found)
    if importance:
        _importance(more[0], importance, found["aims"][0]["figure"])
    made.append(figure)
    return made


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


def _importance(axes: Axes, importance: Mapping[str, float], figure: str) -> None:
    names = sorted(importance, key=lambda key: importance[key])
    axes.barh(names, [importance[key] for key in names], color=COLOURS[0])
    axes.set_xlabel(f"share of what {figure} varies by (PED-ANOVA)")
