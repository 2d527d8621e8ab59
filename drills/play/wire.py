"""What a drill's server and its clients say to each other: one JSON object a line, answered in order.

A request has `op` (command, ticket, state, transcript, complete, interrupt, close) with its arguments, and in a sealed
drill the player's `token`. An answer has `brought`, or `error` {what, where, hint}. `interrupt` has no answer of its
own: the command that goes on answers sooner.

The instructor has a socket of his own. Every request there has his `token`; `op` is command, watch (`since`: the number
of the first row of the transcript), complete, state or fork. What tells the truth is answered there and nowhere else.
"""

from __future__ import annotations

import json
import socket
from typing import Any

SOCKET = "drill.sock"
INSTRUCTOR_SOCKET = "instructor.sock"
LINE_MAX = 16 << 20


class Lines:
    """A socket as JSON lines."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self._rest = b""
        self._whole: list[dict[str, Any]] = []

    def fileno(self) -> int:
        return self.sock.fileno()

    def send(self, told: dict[str, Any]) -> None:
        """Raises OSError if the other end is gone."""
        self.sock.sendall(json.dumps(told).encode() + b"\n")

    def receive(self) -> bool:
        """Takes what is there, waits if nothing is; False at the end. Raises ValueError for what is no JSON line."""
        data = self.sock.recv(1 << 16)
        if not data:
            return False
        *whole, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > LINE_MAX:
            raise ValueError("a line without end")
        for line in whole:
            try:
                told = json.loads(line)
            except RecursionError:
                raise ValueError("JSON that is nested too deeply") from None
            if not isinstance(told, dict):
                raise ValueError("no JSON object")
            self._whole.append(told)
        return True

    def next(self) -> dict[str, Any] | None:
        """The next whole line that has come."""
        return self._whole.pop(0) if self._whole else None

    def peek(self) -> dict[str, Any] | None:
        return self._whole[0] if self._whole else None

    def next_is(self, op: str) -> bool:
        """Takes the next line if it is this request."""
        if self._whole and self._whole[0].get("op") == op:
            self._whole.pop(0)
            return True
        return False

    def close(self) -> None:
        self.sock.close()
