"""Runs and sweeps: as `testbed run` does them, with their figures as frames."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from railbed.experiment import Experiment, hinted
from results import Run, Runs, load, load_many
from results.store import environment
from testbed.base.errors import InputError
from testbed.base.progress import Progress, for_stderr

Written = Experiment | str | Path | Mapping[str, Any]


def run(
    experiment: Written,
    out: str | Path | None = None,
    *,
    profile: bool = False,
    quiet: bool = False,
) -> Run:
    """Brings the fabric up, runs the workload, takes the fabric down; what it measured.

    `out`: the run's folder (default: results/runs/<timestamp>-<name>). `profile`: the folder says where wall time went.
    `quiet`: no progress is shown.
    Raises RunFailed, which keeps a folder; InputError; MachineError without root.
    """
    from testbed.run import run as runs

    environment.begin()
    with hinted():
        model = Experiment.of(experiment).model
        if model.sweep:
            raise InputError(f"{model.name} is a sweep", model.place("sweep"), "sweep(..) runs all of its points")
        with _progress(quiet) as progress:
            return load(runs.run(model, out, progress, profile=profile).folder)


def sweep(
    experiment: Written,
    out: str | Path | None = None,
    *,
    on: str | None = None,
    retries: int = 0,
    failed: str | None = None,
    quiet: bool = False,
) -> Runs:
    """Runs all points of an experiment with `sweep:`; their runs, whose `figures` have a row for each.

    `on`, `retries` and `failed` are those of `testbed run`. Points that fail are in `failed` of what is returned.
    Raises SweepEnded if it ends before its last point, InputError, MachineError.
    """
    from railbed.points import run_points

    environment.begin()
    with hinted():
        model = Experiment.of(experiment).model
        if not model.sweep:
            raise InputError(f"{model.name} is no sweep", model.place(), "run(..), or .over({KEY: [VALUES]}) before")
        folder, _ = run_points(model, out, _progress(quiet), on=on, retries=retries, failed=failed)
    return load_many([folder])


def _progress(quiet: bool) -> AbstractContextManager[Progress]:
    if quiet:
        return _Quiet()
    from railbed.notebook import NotebookProgress, in_notebook

    return NotebookProgress() if in_notebook() else for_stderr()


class _Quiet(Progress):
    def _print(self, text: str) -> None:
        pass
