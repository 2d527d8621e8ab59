"""Controllers for the points of a sweep, forked from one process that has imported what they need.

`ControllerServer` is that process (controllers/fork_server.py). Who brings fabrics up is handed a `ControllerSeat` for
each: a socket whose other end has a controller that waits for its order. So it can be made here and used in another
process. A seat that is not used, or whose process ends, takes its controller along.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Self

from testbed.machine.processes import Running

_CHECKOUT = Path(__file__).resolve().parents[2]
_ANSWER_S = 60.0
"""After which a controller is started the other way: a busy machine forks in less."""


class ControllerSeat:
    """A controller that waits to be told what it controls, at the other end of a socket.

    The socket can be passed to another process, which makes a seat of it.
    """

    def __init__(self, testbed: socket.socket) -> None:
        self.socket = testbed

    def begin(self, argv: Sequence[str], environment: Mapping[str, str], descriptors: Sequence[int]) -> Running | None:
        """Gives it its order (controllers/fork_server.py); None if it is not there any more.

        It is in the fabric's network namespace then, and waits for `go`.
        """
        order = json.dumps({"argv": list(argv), "environment": dict(environment)}).encode()
        try:
            self.socket.settimeout(_ANSWER_S)
            socket.send_fds(self.socket, [order], list(descriptors))
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
        """Ends its controller."""
        self.socket.close()


class ControllerServer:
    """The process that controllers are forked from; it ends with us."""

    def __init__(self) -> None:
        self._requests, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with its:
            command = ["setpriv", "--pdeathsig", "KILL", sys.executable, "-P", "-m", "controllers.fork_server"]
            self._process = subprocess.Popen(
                [*command, str(its.fileno())],
                env={**os.environ, "PYTHONPATH": str(_CHECKOUT)},
                pass_fds=[its.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                start_new_session=True,
            )

    def seat(self) -> ControllerSeat:
        """Has a controller forked, as soon as the server has imported what it needs."""
        ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with its, suppress(OSError):  # there is no server any more: the seat is empty
            socket.send_fds(self._requests, [b"!"], [its.fileno()])
        return ControllerSeat(ours)

    def close(self) -> None:
        self._requests.close()
        self._process.kill()
        self._process.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
