"""A run from end to end: fabric up, workload measured (attempt.py), fabric down, figures stored.

The run folder is made first, so that an error there comes before anything is made on the machine. The fabric is taken
down whatever happens.
"""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from hardware.client import FabricdError
from results.figures.fidelity import Fidelity
from results.store.folder import RunFolder, StoreError
from testbed.base.errors import RUN_FAILED, InputError, Problem, UserError, require_root
from testbed.base.progress import Progress
from testbed.base.this_process import PendingSignals, caught, held
from testbed.experiment.scale import scaled_down
from testbed.plan.thresholds import warnings
from testbed.run.attempt import Attempt
from testbed.run.outcome import RunFailed, RunResult
from testbed.run.profile import BRING_UP, PLANNING, TEAR_DOWN, Profile

if TYPE_CHECKING:
    from testbed.experiment import Experiment
    from testbed.fabric.lab import Lab
    from testbed.live.tenant import Tenant


def run(
    experiment: Experiment,
    out: str | Path | None = None,
    progress: Progress | None = None,
    *,
    up: Callable[[Experiment], Lab] | None = None,
    on: Tenant | None = None,
    profile: bool = False,
    meanwhile: Callable[[], object] = lambda: None,
) -> RunResult:
    """Runs the experiment and stores it in `out` (default: results/runs/<timestamp>-<name>).

    `up` brings the fabric up (default: Lab.up). With `on` the fabric is up already, and stays. With `profile` the run's
    folder says where its wall time went. `meanwhile` is called in a thread while the fabric goes down.
    Raises RunFailed; InputError for an empty workload and for a folder that cannot be written; and what `up` raises.
    Only after RunFailed there is a run folder.
    """
    progress = progress or Progress()
    check_work(experiment)
    require_root()
    with held(at_the_end=True) as heard:
        try:
            folder = RunFolder.create(experiment.name, out)
        except StoreError as error:
            raise InputError(error.what, error.where, error.hint) from None
        try:
            with heard:
                for warning in warnings(experiment):
                    progress.warn(warning)
                stages = Profile(profile)
                stages.stage(PLANNING)
                attempt = Attempt(experiment, folder, progress, tenant=on, profile=stages)
                stages.stage(BRING_UP)
                lab = _taken(on, attempt) if on else _up(experiment, progress, up)
        except OSError as error:
            folder.discard()
            if problem := no_room(error, folder):
                raise UserError(problem.what, str(error.filename or folder.final), problem.hint) from None
            raise
        except BaseException:
            folder.discard()
            raise
        code = _measured(attempt, lab, meanwhile, heard)
        attempt.stopped = attempt.stopped or heard.came()
        progress.stage("storing the run")
        try:
            return attempt.store(code)
        except OSError as error:
            problem = attempt.problem or no_room(error, folder)
            if problem is None:
                raise
            raise RunFailed(problem, folder.fail(problem.to_dict())) from None


def _up(experiment: Experiment, progress: Progress, up: Callable[[Experiment], Lab] | None) -> Lab:
    """A fabric for this run alone."""
    progress.stage("building the fabric")
    if up is None:
        from testbed.containers import forked
        from testbed.fabric import fork_server
        from testbed.fabric.lab import Lab

        if not experiment.workers.image:
            forked.server().begin()  # it imports meanwhile
        return Lab.up(scaled_down(experiment), seat=fork_server.server().seat(experiment.control.library))
    return up(scaled_down(experiment))


def _taken(on: Tenant, attempt: Attempt) -> Lab:
    """The fabric that is up."""
    if attempt.goes_on:
        what = "a run that goes on after failures needs a fabric of its own"
        raise InputError(what, attempt.experiment.place("workload"), "testbed run FILE")
    on.begin(attempt.experiment.inject, attempt.plan.endpoints)
    try:
        attempt.keep_live()  # now, for one that is killed
    except BaseException:
        on.leave(attempt.plan.endpoints, None)
        raise
    return on.lab


def _measured(attempt: Attempt, lab: Lab, meanwhile: Callable[[], object], heard: PendingSignals) -> int:
    """Measures, and takes the fabric down; what went wrong is the attempt's `problem`. Returns its exit code."""
    folder, code = attempt.folder, RUN_FAILED
    try:
        with ExitStack() as stack:
            stack.callback(_down, lab, attempt, meanwhile)
            with heard:
                attempt.measure(lab)
    except UserError as error:
        attempt.problem = attempt.problem or Problem(error.what, error.where, error.hint)
    except FabricdError as error:
        attempt.problem = attempt.problem or Problem(str(error), "fabricd", "see logs/fabricd.log of the run")
    except (KeyboardInterrupt, SystemExit) as stop:
        code = stop.code if isinstance(stop, SystemExit) and isinstance(stop.code, int) else 130
        attempt.problem = Problem("the run was interrupted", "", "what was measured until then is kept")
        if not attempt.counters:
            attempt.fidelity = Fidelity("invalid", ["interrupted: no counters"])
    except OSError as error:
        attempt.problem = no_room(error, folder)
        if attempt.problem is None:
            folder.fail(Problem(f"internal error: {type(error).__name__}: {error}").to_dict())
            raise
    except BaseException as error:
        folder.fail(Problem(f"internal error: {type(error).__name__}: {error}").to_dict())
        raise
    return code


def check_work(experiment: Experiment) -> None:
    """Raises InputError for an experiment without a workload: there is nothing to measure."""
    if not experiment.workload:
        hint = "a step such as {collective: all_reduce, sizes: [1MiB]}; `testbed up FILE` needs none"
        raise InputError("there is nothing to run: the workload is empty", experiment.place("workload"), hint)


def no_room(error: OSError, folder: RunFolder) -> Problem | None:
    """The problem if the disk is full; None for other errors."""
    if error.errno not in (errno.ENOSPC, errno.EDQUOT):
        return None
    where = str(error.filename or folder.path)
    return Problem(f"the run cannot be written: {os.strerror(error.errno)}", where, "make room, or use --out")


def _down(lab: Lab, attempt: Attempt, meanwhile: Callable[[], object]) -> None:
    """Takes the fabric down, or only leaves it; if all was measured, the frames are written beside that."""
    attempt.profile.stage(TEAR_DOWN)
    attempt.progress.stage("leaving the fabric" if attempt.tenant else "taking the fabric down")
    with _undisturbed(attempt):
        if attempt.tenant or not attempt.settled:
            attempt.leave(lab)
            return
        beside = threading.Thread(target=_beside, args=(attempt, meanwhile), name="frames")
        beside.start()
        try:
            attempt.leave(lab)
        finally:
            beside.join()


def _beside(attempt: Attempt, meanwhile: Callable[[], object]) -> None:
    attempt.write_frames()
    with suppress(Exception):  # it only saves time: who needs what it does will hear of it
        meanwhile()


def _undisturbed(attempt: Attempt) -> AbstractContextManager[None]:
    """A Ctrl-C or a hangup meanwhile must not stop it, and is noted for later."""

    def note(number: int) -> None:
        attempt.stopped = 128 + number

    return caught(note)
