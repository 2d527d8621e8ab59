"""The step times of a drill's job, in the world and in its twins, with what the player did."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from results.pictures.drawing import COLOURS, legend, new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ACTS = ("config", "probe", "capture", "hint", "submit", "give-up")
MOST_TEXT = 60
_GREY = "0.45"
_LINES = {"yours": (0, "-", 2.0), "nobody's": (3, "--", 1.2), "mended": (2, "--", 1.2)}


def step_times(report: Mapping[str, Any]) -> Figure:
    """From a report, as a drill's log has it."""
    figure, (axes,) = new_figure(f"drill {report['drill']}: {report['title']}", height=4.4)
    for name, steps in report["courses"].items():
        colour, style, width = _LINES[name]
        ends = [(start + took) / 1000 for start, took in steps]
        label = "with nobody's actions" if name == "nobody's" else name
        axes.plot(ends, [took / 1000 for _, took in steps], style, color=COLOURS[colour], linewidth=width, marker=".",
                  markersize=4, label=label)  # fmt: skip
    axes.set_ylim(0, axes.get_ylim()[1] * 1.05)
    axes.axhline(report["slo_ns"] / 1000, color=_GREY, linewidth=0.8, linestyle=":", label="promised")
    marks: dict[float, list[str]] = {report["began_ns"]: ["the drill begins"]}
    for entry in report["acted"]:
        if entry["line"].split()[0] in ACTS:
            marks.setdefault(entry["time_ns"], []).append(entry["line"])
    for time_ns, texts in marks.items():
        axes.axvline(time_ns / 1000, color=_GREY, linewidth=0.7)
        axes.annotate(
            ", ".join(texts)[:MOST_TEXT], (time_ns / 1000, 1), xycoords=("data", "axes fraction"), rotation=90,
            ha="right", va="top", xytext=(-1, -2), textcoords="offset points", fontsize=6, color=_GREY,
        )  # fmt: skip
    axes.set_xlabel("emulated time (us)")
    axes.set_ylabel("time of a step (us)")
    legend(figure)
    return figure
