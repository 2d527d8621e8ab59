"""Controllers that are forked from one process that has imported what they need.

`ControllerServer` is that process (controllers/fork_server.py), from the first seat on. Each fabric gets a
`ControllerSeat`: a socket with a controller at its other end that waits for its order. The socket can be passed to
another process. When a seat is closed, or its process ends, its controller ends.
"""

from __future__ import annotations

import json
import os
import select
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from typing import Self

from testbed.fabric.controller import FORKED_LIBRARY
from testbed.machine.mounts import CHECKOUT
from testbed.machine.processes import Running

_ANSWER_S = 60.0
"""After which a controller is started the other way: a busy machine forks in less."""


class ControllerSeat:
    """A controller that waits at the other end of a socket to be told what it controls."""

    def __init__(self, testbed: socket.socket) -> None:
        self.socket = testbed

    def order(self, argv: Sequence[str], environment: Mapping[str, str], name: str, descriptors: Sequence[int]) -> None:
        """Gives it its order (controllers/fork_server.py). Then it is `taken`."""
        order = json.dumps({"argv": list(argv), "environment": dict(environment), "name": name}).encode()
        with suppress(OSError):  # it is not there any more: its socket says so again
            self.socket.settimeout(_ANSWER_S)
            socket.send_fds(self.socket, [order], list(descriptors))

    @property
    def answered(self) -> bool:
        """Whether `taken` need not wait."""
        return bool(select.select([self.socket], [], [], 0)[0])

    def taken(self) -> Running | None:
        """Waits for the controller that has its order: it is in the fabric's network namespace, and waits for `go`.

        None if it is not there any more: then this seat is empty.
        """
        try:
            pid = int(self.socket.recv(16))
            return Running.of(pid)
        except (OSError, ValueError):  # TimeoutError, ProcessLookupError are OSErrors
            self.close()
            return None

    def go(self) -> None:
        """It is written down, and may begin."""
        with suppress(OSError):  # it has died: who waits for it will see
            self.socket.sendall(b"!")

    def close(self) -> None:
        self.socket.close()


class ControllerServer:
    """The process that controllers are forked from: begun for the first of them, it ends with us."""

    def __init__(self) -> None:
        self._requests, self._far_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._process: subprocess.Popen[bytes] | None = None
        self._begun = False
        self._lock = threading.Lock()

    def begin(self) -> None:
        """Starts it, once: it imports while something else is done.

        It ends when our socket closes: a signal would come as soon as this thread ends.
        """
        with self._lock, self._far_end as far_end:
            if self._begun:
                return
            self._begun = True
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "controllers.fork_server", str(far_end.fileno())],
                env={**os.environ, "PYTHONPATH": str(CHECKOUT)},
                pass_fds=[far_end.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                start_new_session=True,
            )

    def seat(self, library: str) -> ControllerSeat:
        """Has a controller forked, as soon as the server has imported what it needs.

        The seat is empty if the experiment's controller is to run on another library, or there is no server any more.
        """
        near_end, far_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with far_end, suppress(OSError):
            if library == FORKED_LIBRARY:
                self.begin()
                socket.send_fds(self._requests, [b"!"], [far_end.fileno()])
        return ControllerSeat(near_end)

    def close(self) -> None:
        with self._lock:
            self._begun = True
            self._requests.close()
            self._far_end.close()
            if self._process:
                self._process.kill()
                self._process.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@cache
def server() -> ControllerServer:
    """This process's own, which ends with it."""
    return ControllerServer()
