"""Runs and sweeps: as `testbed run` does them, with their figures as frames."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from railbed.experiment import Experiment, hinted
from results import Run, Runs, load, load_many
from results.store import environment
from testbed.base.errors import InputError
from testbed.base.progress import Progress, for_stderr

if TYPE_CHECKING:
    from testbed.tune.search import Found

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
        with progress_of(quiet) as progress:
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
        folder, _ = run_points(model, out, progress_of(quiet), on=on, retries=retries, failed=failed)
    return load_many([folder])


def tune(
    experiment: Written,
    over: Mapping[str, str | list[Any]],
    *,
    minimize: str | Sequence[str] = (),
    maximize: str | Sequence[str] = (),
    trials: int = 50,
    held: tuple[str, Sequence[Any]] | None = None,
    out: str | Path | None = None,
    on: str | None = None,
    quiet: bool = False,
) -> Found:
    """Searches for values that make a figure least or most, as `testbed tune` does (docs/tune.md).

    `over`: by key, `LOW..HIGH` or a list of values. `held`: a key and values that the best, and the file as it is,
    then run with. Raises InputError, MachineError, SweepEnded.
    """
    from railbed.searches import search_for
    from testbed.tune.search import asked
    from testbed.tune.space import over_of

    environment.begin()
    with hinted():
        search = asked([over_of(*one) for one in over.items()], _names(minimize), _names(maximize), trials, held)
        return search_for(Experiment.of(experiment).model, search, out, progress_of(quiet), on=on)


def _names(figures: str | Sequence[str]) -> Sequence[str]:
    return [figures] if isinstance(figures, str) else figures


def progress_of(quiet: bool) -> AbstractContextManager[Progress]:
    """In a notebook where cells are, else on stderr."""
    if quiet:
        return _Quiet()
    from railbed.notebook import NotebookProgress, in_notebook

    return NotebookProgress() if in_notebook() else for_stderr()


class _Quiet(Progress):
    def _print(self, text: str) -> None:
        pass
