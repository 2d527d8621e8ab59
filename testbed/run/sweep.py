"""A sweep: one experiment at many points, each with a fabric of its own, or with that of the point before.

Its axes, and how they are written, are in testbed/experiment/axes.py: a point for every combination of their entries,
the last axis running fastest. If a point fails, the others still run, and the command then exits with 1. Ctrl-C ends
the whole sweep. Each point is in the folder as soon as it is done. How the points are run, a `Runner` says: one after
the other here, or several at a time (testbed/machines).

Before anything runs, every value is checked once, together with the first values of the other keys. In a sweep of up to
CHECKED points every combination is checked. In larger ones an impossible combination is a point that fails.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

from results.figures.summary import FIGURES
from results.store.environment import environment
from results.store.folder import RunFolder, StoreError
from results.store.load import load
from results.store.sweeps import POINTS, SWEEP, described
from testbed.base import yaml_writer
from testbed.base.errors import INTERRUPTED, MACHINE_CANNOT, InputError, Problem, UserError, require_root
from testbed.base.progress import Progress
from testbed.base.this_process import PendingSignals, held
from testbed.experiment.overrides import DoesNotFit, changed
from testbed.fabric.fork_server import ControllerServer
from testbed.live.standing import Place, Standing
from testbed.run.outcome import RunFailed, RunInterrupted
from testbed.run.run import no_room, run

if TYPE_CHECKING:
    from testbed.experiment import Experiment
    from testbed.experiment.axes import Axis, Entry

FILE = SWEEP
CHECKED = 500
"""Up to so many points are all checked before the first one runs: that takes a second or two."""


class SweepEnded(UserError):
    """A sweep that ended before its last point; `folder` keeps the points until then."""

    def __init__(self, problem: Problem, folder: Path, exit_code: int) -> None:
        super().__init__(problem.what, problem.where, problem.hint, exit_code)
        self.folder = folder


@dataclass(frozen=True)
class Point:
    """Values by key, variants by their word, and the experiment that they make; `keys`: all that they set."""

    values: dict[str, Any]
    experiment: Experiment
    keys: Sequence[str]


def count(experiment: Experiment) -> int:
    """How many points the sweep has."""
    return math.prod(len(axis.entries) for axis in experiment.axes())


def points(experiment: Experiment) -> Iterator[Point]:
    """Every point, checked when it is its turn. Raises InputError for a combination that is not valid."""
    for numbers in product(*(range(len(axis.entries)) for axis in experiment.axes())):
        yield _point(experiment, numbers)


def check(experiment: Experiment) -> None:
    """Raises InputError, with file and line, for a key or value that is not valid."""
    axes = experiment.axes()
    for axis in axes:
        for column in axis.columns:
            if column in {"run", "error", "fidelity", *FIGURES}:
                what, where = f"{column!r} is a column of the table already", experiment.place("sweep", axis.word)
                raise InputError(what, where, "give these variants another word")
        for entry in axis.entries:
            for one, _, place in entry.settings:
                if one.partition(".")[0] == "sweep":
                    hint = "name another key: several keys give every combination"
                    raise InputError("there is no sweep within a sweep", place, hint)
    _check_each_once(experiment, axes)
    if count(experiment) <= CHECKED:
        for _ in points(experiment):
            pass


def _check_each_once(experiment: Experiment, axes: Sequence[Axis]) -> None:
    for k, axis in enumerate(axes):
        for n in range(len(axis.entries)):
            if k == 0 or n > 0:  # the point of all first values is checked once
                _point(experiment, [n if i == k else 0 for i in range(len(axes))], k)


def _point(experiment: Experiment, numbers: Sequence[int], suspect: int | None = None) -> Point:
    """The point of the entries with these numbers; `suspect` is the axis to name if an error does not say which."""
    chosen = _chosen(experiment, numbers)
    values = {key: value for entry in chosen for key, value in entry.values.items()}
    settings = [setting for entry in chosen for setting in entry.settings]
    places = {one: place for one, _, place in settings}
    try:
        return Point(values, changed(experiment, [("sweep", {}, ""), *settings], "point"), list(places))
    except DoesNotFit as error:
        inner = ".".join(map(str, error.path))
        named = next((one for one in places if f"{inner}.".startswith(f"{one}.") or one.startswith(f"{inner}.")), "")
        tried = next(iter(chosen[suspect].settings), None) if suspect is not None and not named else None
        place = places[named] if named else tried[2] if tried else f"{experiment.place('sweep')}: {described(values)}"
        raise InputError(error.what, place if named or not inner else f"{place}: {inner}", error.hint) from None


def _chosen(experiment: Experiment, numbers: Sequence[int]) -> list[Entry]:
    return [axis.entries[n] for axis, n in zip(experiment.axes(), numbers, strict=True)]


Runner = Callable[["Experiment", RunFolder, Progress], Generator[tuple[int, dict[str, Any]], None, None]]
"""Runs the points of a sweep that has been checked into its folder; gives each one's number and row as it ends."""


def one_by_one(
    experiment: Experiment, folder: RunFolder, progress: Progress
) -> Generator[tuple[int, dict[str, Any]], None, None]:
    """A Runner."""
    with ControllerServer() as controllers, Standing(controllers) as standing:
        yield from in_turn(standing)(experiment, folder, progress)


def in_turn(standing: Standing) -> Runner:
    """A Runner whose points are on the fabric that stands, if they can."""

    def run_points(
        experiment: Experiment, folder: RunFolder, progress: Progress
    ) -> Generator[tuple[int, dict[str, Any]], None, None]:
        progress.points(count(experiment))
        for k in range(count(experiment)):
            row = _row(experiment, k, folder, progress, standing)
            progress.point_done()
            yield k, row

    return run_points


def run_sweep(
    experiment: Experiment,
    out: str | Path | None,
    progress: Progress,
    runner: Runner = one_by_one,
    prepare: Callable[[Experiment, Progress], None] = lambda *_: None,
) -> tuple[Path, list[dict[str, Any]]]:
    """Runs all points; returns the folder and one row for each: its values, its figures, its run's folder or error.

    `prepare` does what the runner needs before there is a folder. Raises what it raises; InputError before anything
    is run, SweepEnded for Ctrl-C and for what would end every further point, too.
    """
    total = count(experiment)
    progress.stage(f"checking the sweep of {total} points")
    check(experiment)
    require_root()
    prepare(experiment, progress)
    with held() as heard:
        try:
            folder = RunFolder.create(experiment.name, out)
        except StoreError as error:
            raise InputError(error.what, error.where, error.hint) from None
        done: dict[int, dict[str, Any]] = {}

        def write() -> None:
            _write_rows(experiment, folder, done)

        with kept(folder, heard, lambda: f"{len(done)} of {total} points are kept", write):
            with heard:
                _run_points(experiment, folder, progress, runner, done)
            write()
            return folder.complete(), _rows(done)


@contextmanager
def kept(
    folder: RunFolder, heard: PendingSignals, so_far: Callable[[], str], write: Callable[[], None]
) -> Iterator[None]:
    """However it ends, its folder says so. `write` writes the rows that there are, of which `so_far` says how many.

    Raises SweepEnded for Ctrl-C, for a user's mistake, and for a full disk.
    """
    try:
        yield
    except (KeyboardInterrupt, SystemExit, UserError, OSError) as error:
        heard.no_more()
        problem, code = _ended(error, so_far(), folder)
        with suppress(OSError):  # a full disk: its points are in their own lines
            write()
        raise SweepEnded(problem, folder.fail(problem.to_dict()), code) from None
    except BaseException as error:
        folder.fail(Problem(f"internal error: {type(error).__name__}: {error}").to_dict())
        raise


def _run_points(
    experiment: Experiment, folder: RunFolder, progress: Progress, runner: Runner, done: dict[int, dict[str, Any]]
) -> None:
    """Each one's row is in `done`, and in the folder, as soon as it has ended."""
    _write_rows(experiment, folder, {})
    folder.write_json("environment.json", environment(experiment.seed))
    with (folder.path / "experiment.yaml").open("w") as file:
        yaml_writer.dump(experiment.resolved(), file)
    with closing(runner(experiment, folder, progress)) as points_run:
        for k, row in points_run:
            stopped = row.pop("stopped", 0)
            done[k] = row
            folder.append(POINTS, row)
            if stopped:
                raise SystemExit(stopped)


def _rows(done: dict[int, dict[str, Any]]) -> list[dict[str, Any]]:
    return [done[k] for k in sorted(done)]


def _write_rows(experiment: Experiment, folder: RunFolder, done: dict[int, dict[str, Any]]) -> None:
    keys = [column for axis in experiment.axes() for column in axis.columns]
    head = {"name": experiment.name, "keys": keys, "total": count(experiment)}
    folder.write_json(SWEEP, {**head, "points": _rows(done)})


def _ended(
    error: KeyboardInterrupt | SystemExit | UserError | OSError, so_far: str, folder: RunFolder
) -> tuple[Problem, int]:
    """Why the sweep ended early, and the exit code. Raises an OSError that is none of the disk's room."""
    if isinstance(error, OSError):
        problem = no_room(error, folder)
        if problem is None:
            folder.fail(Problem(f"internal error: {type(error).__name__}: {error}").to_dict())
            raise error
        return Problem(problem.what, problem.where, f"{problem.hint}; {so_far}"), MACHINE_CANNOT
    if isinstance(error, UserError):
        return Problem(error.what, error.where, f"{error.hint}; {so_far}" if error.hint else so_far), error.exit_code
    code = error.code if isinstance(error, SystemExit) and isinstance(error.code, int) else INTERRUPTED
    return Problem("the sweep was interrupted", "", so_far), code


def point(experiment: Experiment, k: int) -> tuple[dict[str, Any], list[int]]:
    """The values of point `k` by key, and the numbers of their axes' entries."""
    numbers: list[int] = []
    rest = k
    for axis in reversed(experiment.axes()):
        rest, n = divmod(rest, len(axis.entries))
        numbers.insert(0, n)
    return {key: v for entry in _chosen(experiment, numbers) for key, v in entry.values.items()}, numbers


def at(experiment: Experiment, k: int) -> Experiment:
    """The experiment of point `k`. Raises InputError for a combination that is not valid."""
    return _point(experiment, point(experiment, k)[1]).experiment


def impossible(error: InputError) -> dict[str, Any]:
    """What the row of a combination says that is not valid: only in a large sweep, small ones are checked before."""
    return {"error": f"{error.what} ({error.where})" + (f": {error.hint}" if error.hint else "")}


def _row(experiment: Experiment, k: int, folder: RunFolder, progress: Progress, standing: Standing) -> dict[str, Any]:
    """Runs point `k`. `stopped`: the exit code, if the run was told to stop."""
    values, _ = point(experiment, k)
    progress.point(described(values))
    try:
        one = at(experiment, k)
        row = {**values, **measured(one, folder.path / f"point-{k}", progress, standing.place(one, progress))}
    except InputError as error:
        row = {**values, **impossible(error)}
    say_if_failed(experiment, k, row, folder, progress)
    return row


def say_if_failed(experiment: Experiment, k: int, row: dict[str, Any], folder: RunFolder, progress: Progress) -> None:
    """A note with its error, and where its run is."""
    if "error" in row:
        where = f"; see {folder.path / row['run']}" if "run" in row else ""
        values = described(point(experiment, k)[0])
        progress.note(f"point {k + 1} of {count(experiment)} ({values}) failed: {row['error']}{where}")


def measured(
    experiment: Experiment, folder: Path, progress: Progress, place: AbstractContextManager[Place]
) -> dict[str, Any]:
    """Runs a point into this folder; its figures, or why it failed. `place`: on which fabric."""
    try:
        with place as fabric:
            result = run(experiment, folder, progress, **fabric._asdict())
    except RunFailed as failure:
        stopped = {"stopped": failure.exit_code} if isinstance(failure, RunInterrupted) else {}
        return {"error": failure.what, "run": failure.folder.name, **stopped}
    said = result.to_dict()
    done = load(folder)
    done.experiment = dict(result.experiment)  # as it stands there, and reading it takes long
    return {
        **done.figures,
        "fidelity": said["fidelity"]["verdict"],
        "metrics_sha256": said["metrics_sha256"],
        "run": folder.name,
        **({"stopped": result.stopped} if result.stopped else {}),
    }
