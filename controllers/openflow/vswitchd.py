"""Commands to ovs-vswitchd over its control socket, as ovs-appctl gives them.

The socket speaks JSON-RPC 1.0 (ovs-vswitchd(8), "Runtime management commands"; unixctl.c of Open vSwitch).
"""

from __future__ import annotations

import json
import socket
import struct
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path

TIMEOUT_S = 60.0
_LOOK_S = 0.25
_PEER = struct.Struct("3i")  # of SO_PEERCRED: pid, uid, gid
A_TURN = 10
"""So many commands of one connection it answers in a turn."""
_ANSWER_MAX = 1 << 24


GivenUp = Callable[[], str | None]
"""Asked now and then while there is no answer: why there will be none, or None."""


class CommandFailed(Exception):
    """ovs-vswitchd did not answer, or said no."""


def command(control: Path, method: str, *arguments: str, timeout_s: float = TIMEOUT_S) -> str:
    """Carries out a command and returns what it prints.  Raises CommandFailed."""
    return commands(control, [(method, *arguments)], timeout_s=timeout_s)[0]


def commands(
    control: Path,
    calls: Sequence[Sequence[str]],
    patience: Callable[[int], GivenUp] | None = None,
    *,
    timeout_s: float = TIMEOUT_S,
) -> list[str]:
    """Carries out commands, each with its arguments, and returns what they print.  Raises CommandFailed.

    ovs-vswitchd looks at its control socket once in a turn of its main loop, which takes long with thousands of ports,
    and answers ten commands of each connection then. So they are all sent before the first answer is waited for.
    `patience` has the process's number, and says when it is given up; by default it is by wall time.
    """
    lots = [calls[at : at + A_TURN] for at in range(0, len(calls), A_TURN)]
    try:
        with ExitStack() as stack:
            connections = [stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)) for _ in lots]
            for connection, lot in zip(connections, lots, strict=True):
                connection.settimeout(timeout_s)
                connection.connect(str(control))
                asked = [{"id": n, "method": method, "params": rest} for n, (method, *rest) in enumerate(lot)]
                connection.sendall("".join(map(json.dumps, asked)).encode())
                connection.settimeout(_LOOK_S)
            given_up = patience(_process(connections[0])) if patience and connections else _after(timeout_s)
            answers = [_answers(*each, given_up) for each in zip(connections, map(len, lots), strict=True)]
    except (OSError, ValueError) as error:
        raise CommandFailed(f"{control}: {error}") from None
    said = [(n, answer) for lot in answers for n, answer in enumerate(lot)]
    for n, answer in said:
        if answer.get("id") != n or answer.get("error") is not None:
            raise CommandFailed(f"{control}: {answer.get('error') or answer}")
    return [str(answer.get("result")) for _, answer in said]


def _process(connection: socket.socket) -> int:
    """The number of the process at the other end."""
    told = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size)
    return int(_PEER.unpack(told)[0])


def _after(timeout_s: float) -> GivenUp:
    until = time.monotonic() + timeout_s
    return lambda: "timed out" if time.monotonic() >= until else None


def _received(connection: socket.socket, given_up: GivenUp) -> bytes:
    """What comes next; nothing at the end.  Raises TimeoutError."""
    while True:
        try:
            return connection.recv(1 << 16)
        except TimeoutError:
            if why := given_up():
                raise TimeoutError(why) from None


def _answers(connection: socket.socket, count: int, given_up: GivenUp) -> list[dict[str, object]]:
    """So many JSON objects, one after the other, that are received.  Raises ValueError if they are none."""
    text = b""
    answers: list[dict[str, object]] = []
    decoder = json.JSONDecoder()
    while len(answers) < count and len(text) <= _ANSWER_MAX and (data := _received(connection, given_up)):
        text += data
        if not text.endswith(b"}"):
            continue  # not all of it yet
        rest = text.decode()
        with suppress(ValueError):  # nor of this one
            while rest and len(answers) < count:
                answer, end = decoder.raw_decode(rest)
                rest = rest[end:].lstrip()
                answers.append(answer)
        text = rest.encode()
    if len(answers) < count or text or not all(isinstance(answer, dict) for answer in answers):
        raise ValueError(f"not an answer: {text[:80]!r}")
    return answers
