"""A calibration as a folder: one HTML page with its pictures, the text of the terminal, and the data."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from results.pictures.calibration_plot import Curve, curves, residuals
from testbed.base.errors import InputError
from testbed.calibrate.data import to_dict
from testbed.calibrate.held import scores
from testbed.calibrate.measured import Measured, series_of
from testbed.calibrate.told import of_calibration, of_scores
from testbed.calibrate.work import Outcome
from testbed.report.document import svg, write
from testbed.report.html import PAGE, styles
from testbed.tables.results import lines


def write_report(outcome: Outcome, folder: Path) -> None:
    """Writes `calibration.html`, `.txt` and `.json`.  Raises InputError if it cannot."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        text = text_of(outcome)
        (folder / "calibration.txt").write_text(text)
        (folder / "calibration.json").write_text(json.dumps(to_dict(outcome), indent=1) + "\n")
    except OSError as error:
        raise InputError(f"the report cannot be written: {error.strerror}", str(folder)) from None
    about = {
        "title": f"{outcome.profile.cluster}: calibration",
        "about": outcome.profile.about,
        "text": text,
        "pictures": [svg(figure) for figure in _pictures(outcome)],
        "sources": [one.model_dump() for one in outcome.profile.source],
        "styles": styles(),
    }
    write("calibration.html", folder / "calibration.html", about, [PAGE])


def text_of(outcome: Outcome) -> str:
    """As the terminal shows it."""
    made = outcome.made
    said = lines(of_calibration(outcome.log, outcome.sources, made, outcome.profile, made.model.unknown))
    if outcome.held:
        said += lines(of_scores(outcome.held, scores(outcome.held, more_nodes=outcome.more_nodes)))
    return "\n".join(said) + "\n"


def _pictures(outcome: Outcome) -> list[Any]:
    made = outcome.made
    model = {one.point: float(np.exp(f)) for one, f in zip(made.points, made.fitted.f, strict=True)}
    model |= {one.one.point: one.time_ns for one in outcome.held}
    held = {one.one.point for one in outcome.held}
    points = [*made.points, *(one.one for one in outcome.held)]
    panels: dict[str, list[Curve]] = {}
    for series in series_of(sorted(points, key=lambda one: one.point)):
        panels.setdefault(series[0].point.collective, []).append(_curve(series, model, held))
    return [
        curves("Measured, and as the model has it", panels),
        residuals("Residuals by algorithm and protocol", _by_choice(outcome, model, points)),
    ]


def _curve(series: Sequence[Measured], model: dict[Any, float], held: set[Any]) -> Curve:
    nodes, gpus = series[0].point.nodes, series[0].point.gpus
    return Curve(
        f"{nodes} x {gpus}", [one.point.size_bytes for one in series], [one.time_ns / 1e3 for one in series],
        [model[one.point] / 1e3 for one in series], [one.point in held for one in series],
    )  # fmt: skip


def _by_choice(
    outcome: Outcome, model: dict[Any, float], points: Sequence[Measured]
) -> dict[str, list[tuple[int, float]]]:
    found: dict[str, list[tuple[int, float]]] = {}
    for one in points:
        choice = outcome.made.model.choice(one.point)
        off = 100 * (model[one.point] / one.time_ns - 1)
        found.setdefault(f"{choice.algorithm}/{choice.protocol}", []).append((one.point.size_bytes, off))
    return dict(sorted(found.items()))
