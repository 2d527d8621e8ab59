"""An entry run: its experiment, then its numbers from what that measured."""

from __future__ import annotations

import tempfile
import warnings
from pathlib import Path

from railbed import runs as running
from railbed.gallery.entry import Entry, Made, Point
from results import IncompleteWarning, Run
from results.store.sweeps import sweep


def make(entry: Entry) -> Made:
    """Runs it; its folder of results goes. Raises what `run` and `sweep` raise, and ValueError for a missing value."""
    experiment = entry.experiment()
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore", IncompleteWarning)  # `points` has those that failed
        out = Path(folder, entry.name)
        if experiment.model.sweep:
            running.sweep(experiment, out, quiet=True)
        else:
            running.run(experiment, out, quiet=True)
        made = entry.read(points(out))
    if list(made.values) != [value.about for value in entry.values]:
        raise ValueError(f"{entry.name}: {list(made.values)} are not its values")
    return rounded(made)


def points(folder: Path) -> list[Point]:
    """Of a sweep's folder; of a run's the one that it is."""
    swept = sweep(folder)
    if swept is None:
        return [Point({}, Run(folder))]
    return [
        Point(swept.values(row), Run(folder / row.get("run", f"point-{number}.failed")), row.get("error", ""))
        for number, row in enumerate(swept.points)
    ]


def rounded(made: Made) -> Made:
    """As they are kept: to six digits, which is more than a page shows and less than floating point varies."""
    curves = tuple(
        type(curve)(curve.label, tuple((_short(x), _short(y)) for x, y in curve.points)) for curve in made.curves
    )
    return Made({name: _short(value) for name, value in made.values.items()}, curves)


def _short(value: float) -> float:
    return float(f"{value:.6g}")
