"""Workloads on a fabric that is up: one run while you wait, or runs in the background (`testbed job`).

A background job is a process of the fabric in a session of its own: it survives the terminal, and ends with the
fabric. It has the fabric's job lock (live/jobs.py), and records its progress in the job's file.
"""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from results.store.folder import RUNS
from testbed.base.errors import InputError, UserError
from testbed.fabric.lab import Lab, usable
from testbed.live import jobs
from testbed.live.jobs import Job, JobLock
from testbed.machine.directories import remove_tree
from testbed.machine.ownership import Record, find
from testbed.machine.processes import MARK, Process, wait_for
from testbed.run.compatibility import load_for
from testbed.run.outcome import RunResult
from testbed.run.run import check_work, run

if TYPE_CHECKING:
    from testbed.base.progress import Progress

KEPT = 10
"""Runs of an endless job whose folders stay: the last ones."""
_STOP_S = 60.0
_CHECKOUT = Path(__file__).resolve().parents[2]


def run_on(
    fabric: str,
    file: str | Path,
    settings: Sequence[str],
    out: str | Path | None,
    progress: Progress,
    *,
    profile: bool = False,
) -> RunResult:
    """Runs the workload of `file` once on a live fabric. Raises what testbed.run.run.run raises, and UserError."""
    experiment = load_for(file, find(fabric), settings)
    with jobs.job_on(fabric, name=experiment.name, file=str(file), of=1) as (lab, job):
        result = run(experiment, out, progress, on=jobs.tenant_of(lab, job), profile=profile)
        job.note(runs=1, last=_summary(result))
        return result


def start(
    fabric: str | None, file: str, settings: Sequence[str] = (), out: str | None = None, runs: int | None = 1
) -> tuple[Record, Job]:
    """Starts a job in the background, of so many runs or without end (None). Raises UserError."""
    record = usable(fabric)
    experiment = load_for(file, record, settings)
    check_work(experiment)
    folder = Path(os.path.abspath(out or RUNS / f"{datetime.now():%Y%m%d-%H%M%S}-{experiment.name}"))
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InputError("the folder exists and is not empty", str(folder), "name another folder with --out")
    lock = JobLock.acquire(record)
    try:
        info = {"name": experiment.name, "file": os.path.abspath(file), "settings": list(settings), "of": runs}
        job = lock.new_job(**info, folder=str(folder))
        with job.log.open("wb") as log, _held_back():
            process = subprocess.Popen(
                [sys.executable, "-P", "-m", "testbed.run.job", record.id, job.id, str(lock.fd)],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, pass_fds=[lock.fd],
                env={**os.environ, MARK: record.mark, "PYTHONPATH": str(_CHECKOUT)},
            )  # fmt: skip
        job.note(process=Process.of(process.pid).to_dict())
        return record, job
    finally:
        lock.release()


@contextmanager
def _held_back() -> Iterator[None]:
    """Who is started now hears that it is to stop only when it can say that it was stopped."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def stop(record: Record, job: Job) -> Job:
    """Ends a job that runs, and waits until it has left the fabric. Raises UserError."""
    process = Process.from_dict(job.info["process"])
    process.signal(signal.SIGTERM)

    def over() -> bool:
        return not process.alive() and not jobs.locked(record)

    if not wait_for(over, _STOP_S, pause=0.05):
        process.signal(signal.SIGKILL)
        if not wait_for(over, _STOP_S):
            raise UserError(f"job {job.id} does not end", f"process {process.pid}")
    JobLock.acquire(record).release()  # removes what it has left, if it had to be killed
    return jobs.find(record, job.id)


def main(fabric_id: str, job_id: str, fd: int) -> None:
    """The process of a background job."""
    os.set_inheritable(fd, False)
    signal.signal(signal.SIGTERM, _stop)
    record = find(fabric_id)
    job = next(j for j in jobs.all_jobs(record) if j.id == job_id)
    with _told(), jobs.recording_end(job):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
        experiment = load_for(job.info["file"], record, job.info["settings"])
        folder, of = Path(job.info["folder"]), job.info["of"]
        for number in itertools.count(1) if of is None else range(1, of + 1):
            result = _once(record, job, experiment, folder / f"{number:04d}")
            job.note(runs=number, last=_summary(result))
            if of is None:
                with suppress(OSError):  # somebody else removed it
                    remove_tree(folder / f"{number - KEPT:04d}")
            if result.stopped:
                raise SystemExit(result.stopped)


@contextmanager
def _told() -> Iterator[None]:
    """Prints an error to the job's log, and exits with its code."""
    try:
        yield
    except UserError as error:
        print(f"{error.what} ({error.where})" if error.where else error.what, file=sys.stderr)
        raise SystemExit(error.exit_code) from None


def _once(record: Record, job: Job, experiment: Any, out: Path) -> RunResult:
    lab = Lab.attach(record.id)
    lab.job = job.id
    try:
        return run(experiment, out, on=jobs.tenant_of(lab, job))
    finally:
        lab.close()


def _stop(number: int, _frame: object) -> None:
    raise SystemExit(128 + number)


def _summary(result: RunResult) -> dict[str, Any]:
    """The part of a run's result that the job's file keeps."""
    return {
        "run": str(result.folder),
        "ended": time.time(),
        "fidelity": result.fidelity.to_dict(),
        "metrics_sha256": result.metrics_sha256,
        "results": len(result.results),
    }


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
