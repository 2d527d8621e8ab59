"""What another machine says: lines of JSON, none of them long, and of each what it must have, looked at.

A machine may be broken, of another version, or hostile. What it says is data: nothing of it is carried out, and what is
shown of it has no control characters.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from testbed.base.errors import Problem

LONGEST = 1 << 20
"""Bytes of a line."""
CHUNK = 384 << 10
"""Bytes of a file that go into one."""
MOST_FILES = 16 << 30
"""Bytes that the folder of one point may have, packed or unpacked."""
_TEXT = 4000
_WHOLE = 1 << 62
"""Whole numbers are less."""
_DEEPEST = 8
"""Lists and mappings within each other, of a row."""


class Malformed(Exception):
    """No answer of a worker: what is wrong with it."""


class Receiving(Protocol):
    def recv(self, nbytes: int) -> bytes: ...
    def settimeout(self, timeout: float) -> None: ...


class Lines:
    """Lines from a connection."""

    def __init__(self, channel: Receiving) -> None:
        self._channel = channel
        self._rest = b""

    def next(self, silent_s: float, until: float = math.inf) -> str | None:
        """The next one; None at the end. Raises TimeoutError after `silent_s` without a byte, or at `until`; Malformed
        for one without end; OSError if the connection breaks."""
        while b"\n" not in self._rest:
            if len(self._rest) > LONGEST:
                raise Malformed(f"a line of more than {LONGEST} bytes")
            left = min(silent_s, until - time.monotonic())
            if left <= 0:
                raise TimeoutError
            self._channel.settimeout(left)
            if not (data := self._channel.recv(1 << 16)):
                return None
            self._rest += data
        line, _, self._rest = self._rest.partition(b"\n")
        return line.decode(errors="replace")


@dataclass(frozen=True)
class Greeting:
    """What a worker is, and what it has; `problems` keep points from running there."""

    folder: str
    machine: str
    cpus: int
    memory: int
    problems: list[Problem]


def said(line: str) -> dict[str, Any]:
    """An object."""
    try:
        told = json.loads(line)
    except (ValueError, RecursionError):
        told = None
    if not isinstance(told, dict):
        raise Malformed(f"{plain(line)[:80]!r} is no answer")
    return told


def versions(told: Mapping[str, Any]) -> dict[str, str]:
    its = told.get("versions")
    if not isinstance(its, dict):
        raise Malformed("its greeting has no versions")
    return {plain(name): plain(value) for name, value in its.items()}


def greeting(told: Mapping[str, Any]) -> Greeting:
    folder = _text(told, "folder")
    if not folder.startswith("/") or "/railbed-sweep-" not in folder:
        raise Malformed(f"its folder is {folder!r}")
    machine, cpus, memory = _text(told, "machine"), _whole(told, "cpus", 1), _whole(told, "memory", 0)
    return Greeting(folder, machine, cpus, memory, problems(told))


def problems(told: Mapping[str, Any]) -> list[Problem]:
    found = told.get("problems")
    if not isinstance(found, list) or not all(isinstance(one, dict) for one in found):
        raise Malformed("it does not say what its problems are")
    return [Problem(_text(one, "what"), _text(one, "where"), _text(one, "hint")) for one in found]


def point(told: Any) -> dict[str, Any]:
    """What a point says (point.py), or `killed`."""
    if not isinstance(told, dict):
        raise Malformed("a point says nothing")
    kinds: dict[str, type | tuple[type, ...]] = {
        "row": dict, "mistake": dict, "problem": dict, "bug": str, "notes": list, "warnings": list,
        "seconds": (int, float), "killed": int, "stopped": bool,
    }  # fmt: skip
    for key, kind in kinds.items():
        if key in told and not isinstance(told[key], kind):
            raise Malformed(f"{key} of a point is {plain(told[key])[:80]!r}")
    found = {key: told[key] for key in kinds if key in told}
    for key in ("notes", "warnings"):
        found[key] = [plain(text)[:_TEXT] for text in found.get(key, ())]
    if "row" in found:
        found["row"] = {plain(key): _figure(value) for key, value in found["row"].items()}
        if not isinstance(found["row"].get("error", ""), str):
            raise Malformed("the error of a point is no text")
    if "killed" in found and "row" in found:
        raise Malformed("a point was killed, and has a row")
    if not 0 <= found.get("seconds", 0) < _WHOLE:
        raise Malformed(f"a point took {plain(found['seconds'])[:80]} seconds")
    for key in ("mistake", "problem"):
        if key in found:
            its = found[key]
            found[key] = {part: _text(its, part) for part in ("what", "where", "hint")}
            found[key]["exit_code"] = _whole({"exit_code": 3, **its}, "exit_code", 1)
    if "bug" in found:
        found["bug"] = plain(found["bug"])[:_TEXT]
    if not {"row", "mistake", "problem", "bug", "killed", "stopped"} & found.keys():
        raise Malformed("a point does not say how it ended")
    return {"seconds": 0.0, **found}


def chunk(told: Mapping[str, Any]) -> bytes:
    """Of a file."""
    try:
        return base64.b64decode(told["data"], validate=True)
    except (KeyError, TypeError, ValueError, binascii.Error):
        raise Malformed("a part of a file that is none") from None


def plain(value: Any) -> str:
    """As text without control characters but ends of lines."""
    return "".join(c if c.isprintable() or c == "\n" else " " for c in str(value))


def _figure(value: Any, deep: int = 0) -> Any:
    """As files of results can hold it."""
    if isinstance(value, str):
        return plain(value)[:_TEXT]
    if deep > _DEEPEST or (isinstance(value, int) and abs(value) >= _WHOLE):
        raise Malformed("a figure of a point is too large, or too deep")
    if isinstance(value, list):
        return [_figure(one, deep + 1) for one in value]
    if isinstance(value, dict):
        return {plain(key): _figure(one, deep + 1) for key, one in value.items()}
    return value


def _text(told: Mapping[str, Any], key: str) -> str:
    if not isinstance(value := told.get(key), str):
        raise Malformed(f"it does not say its {key}")
    return plain(value)[:_TEXT]


def _whole(told: Mapping[str, Any], key: str, least: int) -> int:
    value = told.get(key)
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value < _WHOLE:
        raise Malformed(f"its {key} are {plain(value)[:80]!r}")
    return value
