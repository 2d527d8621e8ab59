"""A rank's program in its container, as the testbed sees it: whether it runs, how it ended, its end.

runc starts a container detached, so that no process stays to watch it. We are its init's subreaper, and learn how the
worker ended; of one that was forked into its container (forked.py) the process that has forked it tells us.
"""

from __future__ import annotations

import ctypes
import os
import select
import signal
import subprocess
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import IO, Any

from testbed.containers.forked import Fork
from testbed.machine.processes import existing

File = int | IO[Any] | None
_SET_SUBREAPER = 36  # PR_SET_CHILD_SUBREAPER of prctl(2)


@dataclass
class Worker:
    """A rank's program in its container."""

    rank: int
    _starter: subprocess.Popen[bytes]
    _pid_file: Path
    through_init: bool = True  # tini is the container's init, and reports how the program ended
    _pid: int = 0
    _code: int | None = field(default=None)

    @property
    def starting(self) -> bool:
        return self._starter.poll() is None

    def started(self) -> bool:
        """Waits until the container runs; False if it could not be started."""
        if self._starter.wait() == 0 and not self._pid:
            self._pid = int(self._pid_file.read_text())
            if not self.through_init:
                self._pid_file.unlink(missing_ok=True)
        return self._starter.returncode == 0

    def begun(self) -> bool:
        """Waits until the program runs; False if it could not be started."""
        return self.started()

    @property
    def pid(self) -> int:
        """The pid of the container's init, as seen from here; 0 if it could not be started."""
        return self._pid if self.started() else 0

    def poll(self) -> int | None:
        """None while it runs, else its exit code, negative for the signal that ended it."""
        if self._code is None and self._starter.poll() is not None:
            self._code = self._reap() if self.started() else self._starter.returncode or 1
        return self._code

    def wait(self) -> int:
        """Waits until it has ended; returns its code as `poll` does."""
        while self.poll() is None:
            with suppress(ProcessLookupError), open(os.pidfd_open(self.pid), "rb", buffering=0) as ended:
                select.select([ended], [], [], 1.0)
        return self._code or 0

    def kill(self, number: int = signal.SIGKILL) -> None:
        """Signals the whole container (SIGKILL) or the worker's process group (others)."""
        if self.poll() is None and self.pid:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def _reap(self) -> int | None:
        try:
            pid, status = os.waitpid(self._pid, os.WNOHANG)
        except ChildProcessError:  # another process is its parent: all we know is that it is gone
            return None if any(process.alive() for process in existing([self._pid])) else -signal.SIGKILL
        if pid == 0:
            return None
        code = os.waitstatus_to_exitcode(status)
        by_tini = self.through_init and 128 < code <= 128 + signal.SIGRTMAX  # it reports a signal as 128 + its number
        return 128 - code if by_tini else code


class ForkedWorker(Worker):
    """A program that is forked into a container, whose init does nothing, as soon as that runs. They end together, or
    the container is to `keep`.

    `order` does that: of the init's pid, standard output and error. `instead` starts it where that cannot be.
    """

    def __init__(
        self,
        container: Worker,
        order: Callable[[int, int, int], Fork],
        instead: Callable[[int, int], Worker],
        *streams: File,
        keep: bool = False,
    ) -> None:
        super().__init__(container.rank, container._starter, container._pid_file)
        self._order, self._instead, self._keep = order, instead, keep
        self._streams = [_copy(stream) for stream in streams]
        self._program: Fork | Worker | None = None

    def started(self) -> bool:
        """Waits until the container runs, and gives the order."""
        runs = super().started()
        if runs and self._program is None:
            self._program = self._order(self._pid, self._streams[0], self._streams[1])
        elif not runs:
            self._close()
        return runs

    def _running(self) -> Fork | Worker | None:
        """The program, as soon as it is in its container; None if that could not be started."""
        if self.started() and self._streams:
            if isinstance(self._program, Fork) and self._program.cannot:
                self._program = self._instead(self._streams[0], self._streams[1])
            self._close()
        return self._program

    def begun(self) -> bool:
        return self._running() is not None

    def _close(self) -> None:
        while self._streams:
            os.close(self._streams.pop())

    @property
    def pid(self) -> int:
        """The pid of the program, as seen from here; 0 if it could not be started."""
        program = self._running()
        return program.pid if program else 0

    def kill(self, number: int = signal.SIGKILL) -> None:
        if self.poll() is None and self.pid:
            with suppress(ProcessLookupError):
                os.kill(self._pid, number) if number == signal.SIGKILL else os.killpg(self.pid, number)

    def _reap(self) -> int | None:
        """Once both have ended: without the program the container has no use, unless it is kept for another."""
        program = self._running()
        if program is None or (code := program.poll()) is None:
            return None
        if self._keep:
            return code
        with suppress(ProcessLookupError):
            os.kill(self._pid, signal.SIGKILL)
        with suppress(ChildProcessError):  # ours, once who forked it has been killed; the init waits for that
            os.waitpid(program.pid, os.WNOHANG)
        return None if super()._reap() is None else code


def _copy(stream: File) -> int:
    if stream is None:
        return os.open(os.devnull, os.O_RDWR)
    return os.dup(stream if isinstance(stream, int) else stream.fileno())


@cache
def become_subreaper() -> None:
    ctypes.CDLL(None).prctl(_SET_SUBREAPER, 1, 0, 0, 0)
