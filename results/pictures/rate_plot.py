"""Rates of queue pairs over time: a strip for each, one below the other, so that none hides another.

With more pairs than strips can show it is a map: a row for each pair, darker where it is faster.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from results.figures.values import jain
from results.pictures.drawing import COLOURS, PlotError, new_figure
from results.pictures.rates import Pair, Rates, of_pairs

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from results.store.load import Run

MOST_STRIPS = 16
MOST_ROWS = 64


def rate(run: Run) -> Figure:
    """Every queue pair's sending rate over time, the slowest first, and the fairness among flows that are under way.

    Queue pairs inside a scale-up domain are left out if others use the network: they are many times as fast.
    """
    pairs = of_pairs(run)
    if pairs is None:
        raise PlotError("no queue pair has sent anything")
    drawn = pairs.slowest[:MOST_ROWS]
    some = f": the {len(drawn)} slowest of {len(pairs.rates)}" if len(drawn) < len(pairs.rates) else ""
    flows = not set(run.results["kind"]) <= {"collective", "tasks"} or run.results.empty
    # the hops of a collective do not compete: fairness says nothing
    height = 1.4 + (0.42 * len(drawn) if len(drawn) <= MOST_STRIPS else 4.0 + 0.05 * len(drawn))
    figure, (axes, *fair) = new_figure(f"{run.name}: rates of queue pairs{some}", 2 if flows else 1, height, "x")
    if (place := axes.get_subplotspec()) is not None and fair:
        place.get_gridspec().set_height_ratios([height, 1.8])
        figure.set_size_inches(figure.get_size_inches()[0], height + 1.8)
    (_strips if len(drawn) <= MOST_STRIPS else _map)(axes, pairs, drawn)
    axes.set_title(_notes(pairs, len(drawn)), fontsize=8, loc="right")
    for below in fair:
        index = _fairness(list(pairs.rates.values()))
        below.plot(pairs.edges / 1000, [*index, index[-1]], drawstyle="steps-post", color=COLOURS[7], linewidth=1.1)
        below.set_ylabel("Jain's index of\nthose under way")
        below.set_ylim(0, 1.05)
    for one in (axes, *fair):
        one.set_xlim(0, float(pairs.edges[-1]) / 1000 * 1.01 or 1)
    (axes, *fair)[-1].set_xlabel("emulated time (us)")
    return figure


def _notes(pairs: Rates, drawn: int) -> str:
    height = f"; each strip is {_top(pairs):.3g} Gb/s high" if drawn <= MOST_STRIPS else ""
    left_out = f"; without {pairs.left_out} over the scale-up domains" if pairs.left_out else ""
    return f"the slowest first{height}{left_out}\npayload, {pairs.about}"


def _top(pairs: Rates) -> float:
    """Of all strips and colours, in Gb/s."""
    return max(float(one.max()) for one in pairs.rates.values()) / 1e9 or 1.0


def _strips(axes: Axes, pairs: Rates, drawn: Sequence[Pair]) -> None:
    top = _top(pairs)
    edges = pairs.edges / 1000
    for k, who in enumerate(drawn):
        values = [*pairs.rates[who] / 1e9, 0.0]
        floor = k + 0.45
        axes.fill_between(edges, floor, [floor - 0.85 * v / top for v in values], step="post",
                          color=COLOURS[0], alpha=0.75, linewidth=0, label=pairs.named(who))  # fmt: skip
        axes.axhline(floor, color="0.6", linewidth=0.5)
    axes.set_yticks(range(len(drawn)), [pairs.named(who) for who in drawn], fontsize=8)
    axes.set_ylim(len(drawn) - 0.5, -0.5)
    axes.tick_params(axis="y", length=0)


def _map(axes: Axes, pairs: Rates, drawn: Sequence[Pair]) -> None:
    import numpy as np

    table = np.array([pairs.rates[who] for who in drawn]) / 1e9
    across = (float(pairs.edges[0]) / 1000, float(pairs.edges[-1]) / 1000, len(drawn) - 0.5, -0.5)
    image = axes.imshow(table, aspect="auto", interpolation="nearest", cmap="Blues", vmin=0, vmax=_top(pairs),
                        extent=across)  # fmt: skip
    axes.figure.colorbar(image, ax=axes, label="payload rate (Gb/s)", pad=0.01)
    axes.set_yticks(range(len(drawn)), [pairs.named(who) for who in drawn], fontsize=6)
    axes.grid(False)


def _fairness(rates: list[Any]) -> list[float]:
    """Jain's index in each window, of the pairs between their first and last byte: one that must wait counts, too."""
    import numpy as np

    under_way = []
    for one in rates:
        (some,) = np.nonzero(one)
        under_way.append((some[0], some[-1]) if len(some) else (1, 0))
    columns = range(len(rates[0]))
    here = [[r[k] for r, (first, last) in zip(rates, under_way, strict=True) if first <= k <= last] for k in columns]
    return [jain(column) if any(column) else math.nan for column in here]
