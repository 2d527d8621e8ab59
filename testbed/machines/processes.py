"""Points that run on this machine, each in a process of its own, forked from one that has imported everything.

When a point is killed, its fabric is taken down here. When this process is killed, each point notices, and takes its
fabric down itself (point.py).
"""

from __future__ import annotations

import multiprocessing
import os
import shutil
import signal
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from multiprocessing import forkserver
from multiprocessing.context import ForkServerContext
from pathlib import Path
from typing import Any

from testbed.base.errors import UserError
from testbed.fabric.fork_server import ControllerServer
from testbed.machine import ownership
from testbed.machine.processes import Process, machine, wait_for, wait_gone

PRELOADED = "testbed.machines.preload"
OWNERS = "owners"
MASTER = "master"
END_S = 80.0  # for points to take their fabrics down; then they are killed, and that is done here


class Processes:
    """The points that run here now; `run` is called in as many threads as points may run at a time.

    `folder` names this process, and its `owners` all points' processes: so a later command can tidy up after all of
    them are killed.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / OWNERS).mkdir(exist_ok=True)
        mark(folder)
        self._context = fork_server()
        self._controllers = ControllerServer()
        self._running: set[Process] = set()
        self._lock = threading.Condition()
        self._stopped = False

    def run(self, point: dict[str, Any]) -> dict[str, Any]:
        """Runs a point to its end. Returns its answer (`point.main`), or `killed`: by which signal."""
        from testbed.machines import point as of_point  # takes long: its processes have it already

        receiver, sender = self._context.Pipe()
        with receiver, closing(self._controllers.seat(point["library"])) as seat:
            with self._lock:
                if self._stopped:
                    return {"stopped": True}
                process = self._context.Process(target=of_point.main, args=(sender, point, seat.socket), daemon=False)
                process.start()
                pid = process.pid or 0
                running = None
                with suppress(ProcessLookupError):  # it is dead already
                    running = Process.of(pid)
                    self._running.add(running)
                    owner = self.folder / OWNERS / f"{running.pid}-{running.start}"
                    owner.touch()
            sender.close()
            seat.close()
            self.started(pid)
            answer: dict[str, Any] = {}
            with suppress(EOFError, OSError):
                answer = receiver.recv()
            process.join()
        if not answer:
            take_down({pid})
            answer = {"killed": -(process.exitcode or 0)}
        if running:
            owner.unlink(missing_ok=True)
            with self._lock:
                self._running.discard(running)
                self._lock.notify_all()
        return {**answer, "stopped": True} if self._stopped else answer

    def started(self, pid: int) -> None:
        """A point has begun in this process."""

    def stop(self) -> None:
        """Has all points end, as Ctrl-C would, and keeps new ones from beginning; `run` returns when each has."""
        with self._lock:
            self._stopped = True
            for process in self._running:
                process.signal(signal.SIGTERM)

    def wait(self, seconds: float = END_S) -> int:
        """Returns when no point is left. Those that have not ended by then are killed; returns how many that were."""
        with self._lock:
            if self._lock.wait_for(lambda: not self._running, seconds):
                return 0
            killed = set(self._running)
            for process in killed:
                process.signal(signal.SIGKILL)
            self._lock.wait_for(lambda: not self._running, seconds)  # their fabrics are taken down
            return len(killed)

    def close(self) -> None:
        self._controllers.close()


def fork_server() -> ForkServerContext:
    """Starts the server that points are forked from, if it does not run yet; it imports what they need meanwhile."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([PRELOADED])
    with _no_interrupts():  # inherited: a Ctrl-C at the terminal is ours alone
        forkserver.ensure_running()
    return context


@contextmanager
def _no_interrupts() -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def take_down(owners: set[int]) -> list[str]:
    """Removes the dead fabrics that these processes have left; returns their ids."""
    removed = []
    for record in _of(owners):
        if record.state == "dead":
            with suppress(UserError):
                ownership.undo(record)
                removed.append(record.id)
    return removed


def _of(owners: set[int]) -> list[ownership.Record]:
    return [r for r in ownership.fabrics() if r.in_our_namespace and r.owner and r.owner.pid in owners]


def mark(folder: Path) -> None:
    """Notes in a folder that it is ours."""
    me = Process.of(os.getpid())
    (folder / MASTER).write_text(f"{machine()} {me.pid} {me.start}\n")


def abandoned(folder: Path) -> bool:
    """Whether the master of points in this folder is dead; not if it is on another machine, or cannot be known."""
    try:
        where, pid, start = (folder / MASTER).read_text().split()
        return where == machine() and not Process(int(pid), int(start)).alive()
    except (OSError, ValueError):
        return False


def tidy(folder: Path) -> list[str]:
    """Removes what points have left that were killed together with their master, and `folder`."""
    owners = set()
    for mark in (folder / OWNERS).glob("*-*"):
        pid, _, start = mark.name.partition("-")
        process = Process(int(pid), int(start))
        process.signal(signal.SIGTERM)
        owners.add(process)
    for process in wait_gone(owners, 30.0):
        process.signal(signal.SIGKILL)
    wait_gone(owners, 5.0)
    pids = {process.pid for process in owners}
    removed: list[str] = []

    def all_down() -> bool:
        removed.extend(take_down(pids))
        return not _of(pids)

    wait_for(all_down, 5.0, pause=0.1)  # what an owner has started may hold its fabric's lock longer than it lives
    shutil.rmtree(folder, ignore_errors=True)
    return removed
