"""When new flows take effect on frames.

A barrier's reply says that a switch has accepted its flows.  But Open vSwitch forwards by a cache of earlier
decisions, which its own threads bring up to date within half a second.  To be sure that no frame meets an old rule,
the cache is emptied; the next frame of each kind is then decided anew.

ovs-vswitchd does so on the command `revalidator/purge` of its control socket, and answers when it is done.  The
socket speaks JSON-RPC 1.0 (ovs-vswitchd(8), "Runtime management commands"; unixctl.c of Open vSwitch).
"""

from __future__ import annotations

import json
import socket
from pathlib import Path

TIMEOUT_S = 5.0
_ANSWER_MAX = 1 << 16


class NotPurged(Exception):
    """Open vSwitch has not confirmed that its cache is empty: old rules may be in force for another half a second."""


def purge(control: Path, timeout_s: float = TIMEOUT_S) -> None:
    """Returns when no earlier decision of Open vSwitch is in force any more.  Raises NotPurged."""
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(timeout_s)
            connection.connect(str(control))
            connection.sendall(json.dumps({"id": 0, "method": "revalidator/purge", "params": []}).encode())
            answer = _answer(connection)
    except (OSError, ValueError) as error:
        raise NotPurged(f"{control}: {error}") from None
    if answer.get("id") != 0 or answer.get("error") is not None:
        raise NotPurged(f"{control}: {answer.get('error') or answer}")


def _answer(connection: socket.socket) -> dict[str, object]:
    """The one JSON object that is received.  Raises ValueError if it is none."""
    text = b""
    while data := connection.recv(4096):
        text += data
        if len(text) > _ANSWER_MAX:
            break
        try:
            answer = json.loads(text)
        except ValueError:
            continue  # not all of it yet
        if isinstance(answer, dict):
            return answer
        break
    raise ValueError(f"not an answer: {text[:80]!r}")
