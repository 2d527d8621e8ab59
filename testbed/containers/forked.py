"""Ranks' programs that are forked into their containers by one process that has imported them (fork_server.py).

A Python that imports numpy for each rank would be most of a small run's processor time.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from testbed.machine.mounts import CHECKOUT

_ENVIRONMENT = {"PATH": "/usr/bin:/bin", "HOME": "/tmp", "LANG": "C.UTF-8", "PYTHONPATH": str(CHECKOUT)}
_MESSAGE_BYTES = 1 << 12


def forkable(argv: Sequence[str]) -> bool:
    """Whether it is what ranks' workers run."""
    return list(argv[:2]) == [sys.executable, "-m"] and argv[2].startswith("workloads.")


class Fork:
    """A program in a container, or why there is none (`cannot`)."""

    def __init__(self, seat: socket.socket) -> None:
        self._seat = seat
        said = self._hear()
        self.pid: int = said.get("pid", 0)
        self.cannot: str = "" if self.pid else said.get("cannot", "the process that forks workers has ended")
        self._code: int | None = None

    def poll(self) -> int | None:
        """None while it runs, else its exit code, negative for the signal that ended it; also if nobody knows."""
        if self._code is None and select.select([self._seat], [], [], 0)[0]:
            self._code = int(self._hear().get("code", -signal.SIGKILL))
            self._seat.close()
        return self._code

    def _hear(self) -> dict[str, Any]:
        with suppress(OSError, ValueError):
            return dict(json.loads(self._seat.recv(_MESSAGE_BYTES)))
        return {}


class ForkServer:
    """The process that workers are forked from. It ends with us; those that it has forked are its containers'."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._requests: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None

    def begin(self) -> None:
        """Starts it, unless it runs: it imports what workers need meanwhile."""
        with self._lock:
            self._begin()

    def _begin(self) -> socket.socket:
        if self._requests is None:
            self._requests, far_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            with far_end:
                self._process = subprocess.Popen(
                    [sys.executable, "-P", "-m", "testbed.containers.fork_server", str(far_end.fileno())],
                    env=_ENVIRONMENT,
                    cwd="/",
                    pass_fds=[far_end.fileno()],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    start_new_session=True,
                )
        return self._requests

    def fork(
        self, init: int, groups: Sequence[str], argv: Sequence[str], environment: Mapping[str, str], out: int, err: int
    ) -> Fork:
        """Runs `argv`, which is `PYTHON -m MODULE`, in the container whose init that is."""
        order = {"init": init, "groups": list(groups), "argv": list(argv), "module": argv[2], "imports": []}
        message = json.dumps({**order, "environment": dict(environment)}).encode()
        for _ in range(2):
            near_end, far_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            with self._lock, far_end:
                try:
                    socket.send_fds(self._begin(), [message], [far_end.fileno(), out, err])
                    break
                except OSError:  # it has ended: another one
                    self._requests = None
        return Fork(near_end)


    def processor_s(self) -> float:
        """Processor time so far, with that of those it has forked and that have ended."""
        if self._process is None or self._process.poll() is not None:
            return 0.0
        fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")  # utime, stime, cutime, cstime of proc_pid_stat(5)


@cache
def server() -> ForkServer:
    """This process's."""
    return ForkServer()
