"""Commands to ovs-vswitchd over its control socket, as ovs-appctl gives them.

The socket speaks JSON-RPC 1.0 (ovs-vswitchd(8), "Runtime management commands"; unixctl.c of Open vSwitch).
"""

from __future__ import annotations

import json
import socket
from pathlib import Path

TIMEOUT_S = 5.0
_ANSWER_MAX = 1 << 24


class CommandFailed(Exception):
    """ovs-vswitchd did not answer, or said no."""


def command(control: Path, method: str, *arguments: str, timeout_s: float = TIMEOUT_S) -> str:
    """Carries out a command and returns what it prints.  Raises Refused."""
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(timeout_s)
            connection.connect(str(control))
            connection.sendall(json.dumps({"id": 0, "method": method, "params": arguments}).encode())
            answer = _answer(connection)
    except (OSError, ValueError) as error:
        raise CommandFailed(f"{control}: {error}") from None
    if answer.get("id") != 0 or answer.get("error") is not None:
        raise CommandFailed(f"{control}: {answer.get('error') or answer}")
    return str(answer.get("result"))


def _answer(connection: socket.socket) -> dict[str, object]:
    """The one JSON object that is received.  Raises ValueError if it is none."""
    text = b""
    while data := connection.recv(1 << 16):
        text += data
        if len(text) > _ANSWER_MAX:
            break
        if not text.endswith(b"}"):
            continue  # not all of it yet
        try:
            answer = json.loads(text)
        except ValueError:
            continue
        if isinstance(answer, dict):
            return answer
        break
    raise ValueError(f"not an answer: {text[:80]!r}")
