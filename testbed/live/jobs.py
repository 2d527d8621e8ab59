"""The jobs of a live fabric, one at a time: their files, and the lock of the one that runs.

A fabric's directory has a folder `jobs`. The process that runs a job keeps a lock there as long as it lives. Each job
j1, j2 .. has a file that says what it is, how far it is, and what it has put into the fabric. If a job was killed, the
next one that takes the lock removes what it has left.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from testbed.base.errors import InputError, UserError
from testbed.fabric.lab import Lab
from testbed.machine.lockfile import is_locked
from testbed.machine.ownership import Record
from testbed.machine.processes import Process, wait_for

if TYPE_CHECKING:
    from testbed.live.tenant import Tenant

RUNNING, DONE, FAILED, STOPPED, KILLED = "running", "done", "failed", "stopped", "killed"
_FOLDER = "jobs"
_LOOKS_S = 0.5  # longer than a process has the lock that only looks whether a job runs


class Job:
    """One job's file. `info` is what it says."""

    def __init__(self, path: Path, info: dict[str, Any]) -> None:
        self.path = path
        self.info = info

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
        """Adds to the file, atomically."""
        with suppress(FileNotFoundError, ValueError):  # others write, too
            self.info = json.loads(self.path.read_text())
        self.info |= more
        new = self.path.with_suffix(f".{os.getpid()}.new")
        new.write_text(json.dumps(self.info))
        os.rename(new, self.path)


def all_jobs(record: Record) -> list[Job]:
    """All jobs that a fabric has had, in order; a running one whose process is gone was killed."""
    jobs = [Job.read(path) for path in (record.dir / _FOLDER).glob("j*.json")]
    jobs.sort(key=lambda job: int(job.id[1:]))
    alive = locked(record)
    for job in jobs:
        if job.info["state"] == RUNNING and not alive:
            job.info["state"] = KILLED
    return jobs


def running(record: Record) -> Job | None:
    return next((job for job in all_jobs(record) if job.info["state"] == RUNNING), None)


def find(record: Record, job_id: str) -> Job:
    """Raises InputError."""
    jobs = all_jobs(record)
    for job in jobs:
        if job.id == job_id:
            return job
    ids = ", ".join(job.id for job in jobs) or "none"
    raise InputError(f"fabric {record.id} has had no job {job_id!r}", "command line", f"jobs: {ids}")


def locked(record: Record) -> bool:
    return is_locked(record.dir / _FOLDER / "lock")


def describe(job: Job) -> dict[str, Any]:
    """A job as `testbed job status --json` prints it."""
    keys = ("state", "name", "file", "runs", "of", "folder", "began", "ended", "last", "error")
    return {"job": job.id} | {key: job.info.get(key) for key in keys} | {"pid": job.info["process"]["pid"]}


def _try_lock(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


class JobLock:
    """The right to run a job on a fabric: a lock, shared with processes that inherit `fd`."""

    def __init__(self, record: Record, fd: int) -> None:
        self.record = record
        self.fd = fd

    @classmethod
    def acquire(cls, record: Record) -> Self:
        """Takes the lock, and removes what a killed job has left. Raises InputError if another job runs."""
        if not record.standing:
            raise InputError(f"fabric {record.id} belongs to a run", "command line", "bring one up: testbed up FILE")
        if record.keeper:
            hint = "testbed advance lets that go on; testbed up FILE without --job brings one up for others"
            raise InputError(f"fabric {record.id} repeats a job of its own", "command line", hint)
        folder = record.dir / _FOLDER
        folder.mkdir(exist_ok=True)
        fd = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        if not wait_for(lambda: _try_lock(fd), _LOOKS_S):
            os.close(fd)
            known = [Job.read(path) for path in folder.glob("j*.json")]
            other = next((job for job in known if job.info["state"] == RUNNING), None)
            what = f"job {other.id} ({other.info['name']})" if other else "another job"
            hint = f"testbed job stop {other.id} --fabric {record.id}, or wait" if other else "try again in a moment"
            raise InputError(f"{what} runs on fabric {record.id}", "command line", hint)
        lock = cls(record, fd)
        try:
            lock.clear_killed()
        except BaseException:
            lock.release()
            raise
        return lock

    def clear_killed(self) -> None:
        for path in (self.record.dir / _FOLDER).glob("j*.json"):
            job = Job.read(path)
            if job.info["state"] == RUNNING:
                _undo(self.record, job)
                job.note(state=KILLED, ended=time.time(), faults=[], aside=[])

    def new_job(self, **info: Any) -> Job:
        folder = self.record.dir / _FOLDER
        number = 1 + max((int(path.stem[1:]) for path in folder.glob("j*.json")), default=0)
        job = Job(folder / f"j{number}.json", {})
        process = Process.of(os.getpid()).to_dict()
        job.note(state=RUNNING, process=process, began=time.time(), runs=0, faults=[], aside=[], **info)
        return job

    def release(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1


def _undo(record: Record, job: Job) -> None:
    with closing(Lab.attach(record.id)) as lab:
        lab.job = job.id
        tenant = tenant_of(lab, job)
        tenant.resume(job.info.get("faults", []), job.info.get("aside", []))
        tenant.leave(job.info.get("ranks", []), None)


def tenant_of(lab: Lab, job: Job) -> Tenant:
    from testbed.live.tenant import Tenant

    return Tenant(lab, job.note)


@contextmanager
def job_on(fabric_id: str | None, **info: Any) -> Iterator[tuple[Lab, Job]]:
    """Attaches to a live fabric for one new job; its file records how it ends."""
    with closing(Lab.attach(fabric_id)) as lab:
        lock = JobLock.acquire(lab.record)
        try:
            job = lock.new_job(**info)
            lab.job = job.id
            with recording_end(job):
                yield lab, job
        finally:
            lock.release()


@contextmanager
def recording_end(job: Job) -> Iterator[None]:
    state: dict[str, Any] = {"state": DONE}
    try:
        yield
    except UserError as error:
        by_signal = error.exit_code > 128
        state = {"state": STOPPED if by_signal else FAILED, "error": error.to_dict()}
        raise
    except BaseException as error:
        stopped = isinstance(error, KeyboardInterrupt | SystemExit)
        state = {"state": STOPPED} if stopped else {"state": FAILED, "error": {"what": str(error)}}
        raise
    finally:
        with suppress(FileNotFoundError):  # the fabric went down under it
            job.note(ended=time.time(), **state)
