"""A sweep: one experiment at many points, each with a fabric of its own.

`sweep: {KEY: [VALUES], ..}` names keys of the file by their path, `fabric.topology.star.hosts` or `inject.0.rate`;
several keys give every combination, the last key running fastest. `"KEY, KEY": [VALUES]` gives both the same value. A
point that fails is a result, too.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

from results.comparison import SWEEP
from results.environment import environment
from results.store import RunFolder, StoreError
from results.summary import labels, summarize
from testbed.errors import InputError, Problem
from testbed.overrides import changed
from testbed.progress import Progress
from testbed.run import RunFailed, run

if TYPE_CHECKING:
    from testbed.spec import Experiment

FILE = SWEEP


@dataclass(frozen=True)
class Point:
    """Values by key, and the experiment that they make."""

    values: dict[str, Any]
    experiment: Experiment


def points(experiment: Experiment) -> Iterator[Point]:
    """Every point, checked. Raises InputError for a key or value that the file could not have."""
    keys = list(experiment.sweep)
    for combination in product(*experiment.sweep.values()):
        values = dict(zip(keys, combination, strict=True))
        shown = "sweep: " + ", ".join(f"{k} = {v}" for k, v in values.items())
        each = {key.strip(): value for keys, value in values.items() for key in keys.split(",")}
        yield Point(values, changed(experiment, {"sweep": {}, **each}, shown))


def run_sweep(experiment: Experiment, out: str | Path | None, progress: Progress) -> tuple[Path, list[dict[str, Any]]]:
    """Runs all points; returns the folder and one row for each: its values, its figures, its run's folder or error."""
    every = list(points(experiment))
    try:
        folder = RunFolder.create(experiment.name, out)
    except StoreError as error:
        raise InputError(error.what, error.where, error.hint) from None
    rows: list[dict[str, Any]] = []
    try:
        for k, point in enumerate(every):
            progress.note(f"point {k + 1} of {len(every)}: {', '.join(f'{n} = {v}' for n, v in point.values.items())}")
            rows.append({**point.values, **_measured(point.experiment, folder.path / f"point-{k}", progress)})
    except BaseException as error:
        problem = Problem(f"the sweep ended at point {len(rows) + 1} of {len(every)}: {error}")
        folder.fail(problem.to_dict())
        raise
    folder.write_json(FILE, {"name": experiment.name, "keys": list(experiment.sweep), "points": rows})
    folder.write_json("environment.json", environment(experiment.seed))
    return folder.complete(), rows


def _measured(experiment: Experiment, folder: Path, progress: Progress) -> dict[str, Any]:
    try:
        result = run(experiment, folder, progress)
    except RunFailed as failure:
        return {"error": failure.what, "run": failure.folder.name}
    said = result.to_dict()
    return {
        **summarize(result.results, said["counters"], labels(experiment.resolved()["workload"])),
        "fidelity": said["fidelity"]["verdict"],
        "metrics_sha256": said["metrics_sha256"],
        "run": folder.name,
    }
