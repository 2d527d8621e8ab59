"""Parses what another machine sends: lines of JSON, of bounded length.

A machine may be broken, of another version, or hostile. So each value is checked, nothing is executed, and no control
characters are shown.
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

from results.store import zipped
from testbed.base.errors import Problem

LONGEST = 1 << 20
"""Bytes of a line."""
CHUNK = 384 << 10
"""Bytes of a file that go into one."""
MOST_FILES = zipped.MOST_BYTES
"""Bytes that the folder of one point may have, packed or unpacked."""
_TEXT = 4000
_WHOLE = 1 << 62
"""Whole numbers are less."""
_DEEPEST = 8
"""Lists and mappings within each other, of a row."""


class BadAnswer(Exception):
    """No answer of a worker: what is wrong with it."""


class Receiving(Protocol):
    def recv(self, nbytes: int) -> bytes: ...
    def settimeout(self, timeout: float) -> None: ...


class LineReader:
    def __init__(self, channel: Receiving) -> None:
        self._channel = channel
        self._rest = b""

    def next(self, silent_s: float, until: float = math.inf) -> str | None:
        """The next line; None at the end. Raises TimeoutError after `silent_s` without a byte, or at `until`; BadAnswer
        for a line without end; OSError if the connection breaks."""
        while b"\n" not in self._rest:
            if len(self._rest) > LONGEST:
                raise BadAnswer(f"a line of more than {LONGEST} bytes")
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


def parse(line: str) -> dict[str, Any]:
    try:
        answer = json.loads(line)
    except (ValueError, RecursionError):
        answer = None
    if not isinstance(answer, dict):
        raise BadAnswer(f"{plain(line)[:80]!r} is no answer")
    return answer


def versions(answer: Mapping[str, Any]) -> dict[str, str]:
    if not isinstance(found := answer.get("versions"), dict):
        raise BadAnswer("its greeting has no versions")
    return {plain(name): plain(value) for name, value in found.items()}


def greeting(answer: Mapping[str, Any]) -> Greeting:
    folder = _text(answer, "folder")
    if not folder.startswith("/") or "/railbed-sweep-" not in folder:
        raise BadAnswer(f"its folder is {folder!r}")
    machine, cpus, memory = _text(answer, "machine"), _whole(answer, "cpus", 1), _whole(answer, "memory", 0)
    return Greeting(folder, machine, cpus, memory, problems(answer))


def problems(answer: Mapping[str, Any]) -> list[Problem]:
    found = answer.get("problems")
    if not isinstance(found, list) or not all(isinstance(one, dict) for one in found):
        raise BadAnswer("it does not say what its problems are")
    return [Problem(_text(one, "what"), _text(one, "where"), _text(one, "hint")) for one in found]


def point(answer: Any) -> dict[str, Any]:
    """What a point says (point.py), or `killed`."""
    if not isinstance(answer, dict):
        raise BadAnswer("a point says nothing")
    kinds: dict[str, type | tuple[type, ...]] = {
        "row": dict, "mistake": dict, "problem": dict, "bug": str, "notes": list, "warnings": list,
        "seconds": (int, float), "killed": int, "stopped": bool,
    }  # fmt: skip
    for key, kind in kinds.items():
        if key in answer and not isinstance(answer[key], kind):
            raise BadAnswer(f"{key} of a point is {plain(answer[key])[:80]!r}")
    found = {key: answer[key] for key in kinds if key in answer}
    for key in ("notes", "warnings"):
        found[key] = [plain(text)[:_TEXT] for text in found.get(key, ())]
    if "row" in found:
        found["row"] = {plain(key): _figure(value) for key, value in found["row"].items()}
        if not isinstance(found["row"].get("error", ""), str):
            raise BadAnswer("the error of a point is no text")
    if "killed" in found and "row" in found:
        raise BadAnswer("a point was killed, and has a row")
    if not 0 <= found.get("seconds", 0) < _WHOLE:
        raise BadAnswer(f"a point took {plain(found['seconds'])[:80]} seconds")
    for key in ("mistake", "problem"):
        if error := found.get(key):
            found[key] = {part: _text(error, part) for part in ("what", "where", "hint")}
            found[key]["exit_code"] = _whole({"exit_code": 3, **error}, "exit_code", 1)
    if "bug" in found:
        found["bug"] = plain(found["bug"])[:_TEXT]
    if not {"row", "mistake", "problem", "bug", "killed", "stopped"} & found.keys():
        raise BadAnswer("a point does not say how it ended")
    return {"seconds": 0.0, **found}


def chunk(answer: Mapping[str, Any]) -> bytes:
    try:
        return base64.b64decode(answer["data"], validate=True)
    except (KeyError, TypeError, ValueError, binascii.Error):
        raise BadAnswer("part of a file cannot be decoded") from None


def plain(value: Any) -> str:
    """As text without control characters but ends of lines."""
    return "".join(c if c.isprintable() or c == "\n" else " " for c in str(value))


def _figure(value: Any, deep: int = 0) -> Any:
    """As files of results can hold it."""
    if isinstance(value, str):
        return plain(value)[:_TEXT]
    if deep > _DEEPEST or (isinstance(value, int) and abs(value) >= _WHOLE):
        raise BadAnswer("a figure of a point is too large, or too deep")
    if isinstance(value, list):
        return [_figure(one, deep + 1) for one in value]
    if isinstance(value, dict):
        return {plain(key): _figure(one, deep + 1) for key, one in value.items()}
    return value


def _text(answer: Mapping[str, Any], key: str) -> str:
    if not isinstance(value := answer.get(key), str):
        raise BadAnswer(f"it does not say its {key}")
    return plain(value)[:_TEXT]


def _whole(answer: Mapping[str, Any], key: str, least: int) -> int:
    value = answer.get(key)
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value < _WHOLE:
        raise BadAnswer(f"its {key} are {plain(value)[:80]!r}")
    return value
