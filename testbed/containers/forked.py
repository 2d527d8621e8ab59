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
from testbed.machine.processes import Running

_ENVIRONMENT = {"PATH": "/usr/bin:/bin", "HOME": "/tmp", "LANG": "C.UTF-8", "PYTHONPATH": str(CHECKOUT)}
_MESSAGE_BYTES = 1 << 12
_PYTHON = [sys.executable, "-m"]


def forkable(argv: Sequence[str]) -> bool:
    """Whether it is what ranks' workers run."""
    return list(argv[:2]) == _PYTHON and argv[2].startswith("workloads.")


class Fork:
    """A program that has been ordered."""

    def __init__(self, seat: socket.socket) -> None:
        self._seat = seat
        self._said: dict[str, Any] = {}

    @property
    def cannot(self) -> str:
        """Why it does not run and never has; waits until that is known."""
        while not self._said.keys() & {"joined", "cannot", "code"}:
            self._hear()
        return str(self._said.get("cannot", ""))

    @property
    def pid(self) -> int:
        """As seen from here; 0 if it has not begun."""
        while not self._said.keys() & {"pid", "cannot", "code"}:
            self._hear()
        return int(self._said.get("pid", 0))

    def poll(self) -> int | None:
        """None while it runs, else its exit code, negative for the signal that ended it; also if nobody knows."""
        while "code" not in self._said and select.select([self._seat], [], [], 0)[0]:
            self._hear()
        return self._said.get("code")

    def _hear(self) -> None:
        try:
            self._said |= json.loads(self._seat.recv(_MESSAGE_BYTES))
        except (OSError, ValueError):  # ValueError: the end
            unknown = {} if "joined" in self._said else {"cannot": "the process that forks workers has ended"}
            self._said |= {**unknown, "code": -signal.SIGKILL}
        if "code" in self._said:
            self._seat.close()


class ForkServer:
    """The process that workers are forked from. It ends with us; those that it has forked are their containers'."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._requests: socket.socket | None = None
        self._process: Running | None = None  # a fork of ours may ask, too
        self._child: subprocess.Popen[bytes] | None = None
        self.refused = False
        """It cannot fork here."""

    def begin(self) -> None:
        """Starts it, unless it runs: it imports what workers need meanwhile."""
        with self._lock:
            self._begin()

    def _begin(self) -> socket.socket:
        if self._requests is None:
            self._requests, far_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            with far_end:
                self._child = subprocess.Popen(
                    [sys.executable, "-P", "-m", "testbed.containers.fork_server", str(far_end.fileno())],
                    env=_ENVIRONMENT,
                    cwd="/",
                    pass_fds=[far_end.fileno()],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,  # who reads ours would wait for its end: it may outlive us in a keeper
                    start_new_session=True,
                )
                self._process = Running.of(self._child.pid)
        return self._requests

    def fork(
        self,
        init: int,
        groups: Sequence[str],
        argv: Sequence[str],
        environment: Mapping[str, str],
        out: int,
        err: int,
        *,
        keep: bool = False,
    ) -> Fork:
        """Orders `argv`, which is `PYTHON -m MODULE ..`, in the container whose init that is; `keep`: it goes on."""
        order = {"init": init, "groups": list(groups), "argv": list(argv), "environment": dict(environment)}
        order["keep"] = keep
        near_end, far_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with self._lock, far_end:
            for _ in range(2):
                try:
                    socket.send_fds(self._begin(), [json.dumps(order).encode()], [far_end.fileno(), out, err])
                    break
                except OSError:  # it has ended: another one
                    self._requests = None
        return Fork(near_end)

    def refuses(self) -> None:
        """It has said that it cannot, or has ended."""
        self.refused = self._process is not None and self._process.poll() is None

    def processor_s(self) -> float:
        """Processor time so far, with that of those it has forked and that have ended."""
        if self._process is None or self._process.poll() is not None:
            return 0.0
        with suppress(OSError):
            fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
            return sum(map(int, fields[11:15])) / os.sysconf(
                "SC_CLK_TCK"
            )  # utime, stime, cutime, cstime: proc_pid_stat(5)
        return 0.0


@cache
def server() -> ForkServer:
    """This process's."""
    return ForkServer()
