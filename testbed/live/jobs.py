"""The one job that a fabric has at a time: who it is, and what is to be undone if it was killed.

A fabric's directory has a folder `jobs`: a lock, held by the process that runs the job as long as it lives, and for
each job j1, j2 .. a file that says what it is, how far, and what it has brought. Whoever comes after a job that was
killed takes away what it has left.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from testbed.base.errors import InputError, UserError
from testbed.fabric.lab import Lab
from testbed.machine.hold import held
from testbed.machine.ownership import Record
from testbed.machine.processes import Process, wait_for

if TYPE_CHECKING:
    from testbed.live.guest import Guest

RUNNING, DONE, FAILED, STOPPED, KILLED = "running", "done", "failed", "stopped", "killed"
_FOLDER = "jobs"
_LOOKS_S = 0.5  # longer than whoever only looks whether a job runs has the lock


class Job:
    """One job's file. `said` is what stands in it."""

    def __init__(self, path: Path, said: dict[str, Any]) -> None:
        self.path = path
        self.said = said

    @property
    def id(self) -> str:
        return self.path.stem

    @property
    def log(self) -> Path:
        return self.path.with_suffix(".log")

    @classmethod
    def read(cls, path: Path) -> Self:
        return cls(path, json.loads(path.read_text()))

    def note(self, **more: Any) -> None:
        """Writes more down, at once and whole."""
        with suppress(FileNotFoundError, ValueError):  # others write, too
            self.said = json.loads(self.path.read_text())
        self.said |= more
        new = self.path.with_suffix(f".{os.getpid()}.new")
        new.write_text(json.dumps(self.said))
        os.rename(new, self.path)


def jobs(record: Record) -> list[Job]:
    """All jobs that a fabric has had, in order; a running one whose process is gone was killed."""
    found = [Job.read(path) for path in (record.dir / _FOLDER).glob("j*.json")]
    found.sort(key=lambda job: int(job.id[1:]))
    alive = taken(record)
    for job in found:
        if job.said["state"] == RUNNING and not alive:
            job.said["state"] = KILLED
    return found


def running(record: Record) -> Job | None:
    """The job that runs on a fabric now."""
    return next((job for job in jobs(record) if job.said["state"] == RUNNING), None)


def find(record: Record, job_id: str) -> Job:
    """Raises InputError."""
    known = jobs(record)
    for job in known:
        if job.id == job_id:
            return job
    ids = ", ".join(job.id for job in known) or "none"
    raise InputError(f"fabric {record.id} has had no job {job_id!r}", "command line", f"jobs: {ids}")


def taken(record: Record) -> bool:
    """Whether somebody holds the lock."""
    return held(record.dir / _FOLDER / "lock")


def described(job: Job) -> dict[str, Any]:
    """What a program is told of a job."""
    keys = ("state", "name", "file", "runs", "of", "folder", "began", "ended", "last", "error")
    return {"job": job.id} | {key: job.said.get(key) for key in keys} | {"pid": job.said["process"]["pid"]}


def _locked(fd: int) -> bool:
    """Takes the lock, if it is free."""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


class Seat:
    """The right to run a job on a fabric: a lock that whoever inherits `fd` holds, too."""

    def __init__(self, record: Record, fd: int) -> None:
        self.record = record
        self.fd = fd

    @classmethod
    def take(cls, record: Record) -> Self:
        """Raises UserError if another job runs. What a killed one has left is taken away."""
        if not record.standing:
            raise UserError(f"fabric {record.id} belongs to a run", hint="bring one up: testbed up FILE")
        folder = record.dir / _FOLDER
        folder.mkdir(exist_ok=True)
        fd = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        if not wait_for(lambda: _locked(fd), _LOOKS_S):
            os.close(fd)
            known = [Job.read(path) for path in folder.glob("j*.json")]
            there = next((job for job in known if job.said["state"] == RUNNING), None)
            what = f"job {there.id} ({there.said['name']})" if there else "another job"
            hint = f"testbed job stop {there.id} --fabric {record.id}, or wait" if there else "try again in a moment"
            raise UserError(f"{what} runs on fabric {record.id}", hint=hint)
        seat = cls(record, fd)
        try:
            seat.clear()
        except BaseException:
            seat.release()
            raise
        return seat

    def clear(self) -> None:
        """Takes away what jobs have left that were killed."""
        for path in (self.record.dir / _FOLDER).glob("j*.json"):
            job = Job.read(path)
            if job.said["state"] == RUNNING:
                _undo(self.record, job)
                job.note(state=KILLED, ended=time.time(), faults=[], aside=[])

    def new(self, **said: Any) -> Job:
        """A job of its own number."""
        folder = self.record.dir / _FOLDER
        number = 1 + max((int(path.stem[1:]) for path in folder.glob("j*.json")), default=0)
        job = Job(folder / f"j{number}.json", {})
        process = Process.of(os.getpid()).to_dict()
        job.note(state=RUNNING, process=process, began=time.time(), runs=0, faults=[], aside=[], **said)
        return job

    def release(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1


def _undo(record: Record, job: Job) -> None:
    lab = Lab.attach(record.id)
    lab.job = job.id
    try:
        guest = guest_of(lab, job)
        guest.resume(job.said.get("faults", []), job.said.get("aside", []))
        guest.leave(job.said.get("ranks", []), None)
    finally:
        lab.close()


def guest_of(lab: Lab, job: Job) -> Guest:
    from testbed.live.guest import Guest

    return Guest(lab, job.note)


@contextmanager
def seated(fabric_id: str | None, **said: Any) -> Iterator[tuple[Lab, Job]]:
    """A live fabric for one job of ours, which is written down as it goes; at the end the seat is free again."""
    lab = Lab.attach(fabric_id)
    try:
        seat = Seat.take(lab.record)
        try:
            job = seat.new(**said)
            lab.job = job.id
            with ended(job):
                yield lab, job
        finally:
            seat.release()
    finally:
        lab.close()


@contextmanager
def ended(job: Job) -> Iterator[None]:
    """Writes down how a job ends."""
    state: dict[str, Any] = {"state": DONE}
    try:
        yield
    except UserError as error:
        state = {"state": STOPPED if _by_signal(error.exit_code) else FAILED, "error": error.to_dict()}
        raise
    except BaseException as error:
        stopped = isinstance(error, KeyboardInterrupt | SystemExit)
        state = {"state": STOPPED} if stopped else {"state": FAILED, "error": {"what": str(error)}}
        raise
    finally:
        with suppress(FileNotFoundError):  # the fabric went down under it
            job.note(ended=time.time(), **state)


def _by_signal(code: int) -> bool:
    return code > 128
