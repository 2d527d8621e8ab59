"""What workers print, made safe: they are not trusted, and what they say reaches files, figures and a terminal.

A line that begins as one of ours must be what the plan lets that rank say, key by key; what else it holds is left out.
Anything else is text: without control characters, and only so much of it is kept.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

TEXT_MAX = 1000  # characters of one message
KEPT_BYTES = 16 << 20  # of a rank's text, in its log
_COUNT_MAX = 2**53
_TIME_MAX_NS = 2.0**50  # thirteen days
_OF_COLLECTIVES = ("host_ns", "sent_bytes", "tx_bytes", "rx_bytes")

Line = dict[str, Any]


class Unexpected(Exception):
    """A line is not what was expected; the text says in what."""


def printable(text: str) -> str:
    """The text as a terminal may have it: control characters (but tabs) as escapes such as \\x1b."""
    return "".join(c if c == "\t" or c.isprintable() else c.encode("unicode_escape").decode() for c in text)


class Sayings:
    """Tells lines from text, for the ranks of one plan; counts what each has said."""

    def __init__(self, plan: Mapping[str, Any]) -> None:
        self._steps: Sequence[Mapping[str, Any]] = plan["steps"]
        self._ranks: int = plan["ranks"]
        self._most = sum(map(_lines_of, self._steps))
        self._measured: Counter[int] = Counter()
        self._kept: Counter[int] = Counter()

    def line(self, rank: int, text: bytes) -> Line | None:
        """The line, checked and with `rank`; None if it is mere text. Raises Unexpected."""
        try:
            said = json.loads(text)
        except (ValueError, RecursionError):
            return None
        if not isinstance(said, dict) or not isinstance(kind := said.get("kind"), str) or kind not in _CHECKS:
            return None
        line = {"kind": kind, **_CHECKS[kind](self, rank, said), "rank": rank}
        if kind in ("collective", "flow"):
            self._measured[rank] += 1
            if self._measured[rank] > self._most:
                raise Unexpected(f"more than the {self._most} results that its plan has")
        return line

    def text(self, rank: int, text: bytes) -> str:
        """Text as it is to be kept; empty when the rank has said enough."""
        if self._kept[rank] > KEPT_BYTES:
            return ""
        self._kept[rank] += len(text) + 1
        if self._kept[rank] > KEPT_BYTES:
            return f"[more than {KEPT_BYTES >> 20} MiB: nothing else of what this rank says is kept]"
        return printable(text.decode(errors="replace"))

    # -- by kind

    def _collective(self, rank: int, said: Line) -> Line:
        step = self._step(rank, said, "collective")
        chosen = {told["algorithm"] for told in (step.get("chosen") or {}).values()}
        line = {
            "step": said["step"],
            "collective": _one_of(said, "collective", (step["collective"],)),
            "algorithm": _one_of(said, "algorithm", chosen or (step["algorithm"],)),
            "size_bytes": _one_of(said, "size_bytes", step["sizes"]),
            "iteration": _one_of(said, "iteration", range(-step["warmup"], step["iterations"])),
            "wrong": _count(said, "wrong"),
            **_times(said),
        }
        groups = [n for n, told in enumerate(step.get("groups") or ()) if rank in told["ranks"]]
        if groups:
            line["group"] = _one_of(said, "group", groups)
        if said.get("fallback") is not None:
            line["fallback"] = _text(said, "fallback")
        for key in _OF_COLLECTIVES:
            if said.get(key) is not None:
                line[key] = _time(said, key) if key.endswith("_ns") else _count(said, key)
        return line

    def _flow(self, rank: int, said: Line) -> Line:
        step = self._step(rank, said, "flows")
        number = _one_of(said, "flow", range(len(step["flows"])))
        told = step["flows"][number]
        if rank not in (told["from"], told["to"]):
            raise Unexpected(f"flow {number} is between other ranks")
        line = {key: _one_of(said, key, (told[key],)) for key in ("from", "to")}
        line["size_bytes"] = _one_of(said, "size_bytes", (told["size_bytes"],))
        if "role" in said:
            line["role"] = _one_of(said, "role", ("sender", "receiver"))
        return {"step": said["step"], "flow": number, **line, "wrong": _count(said, "wrong"), **_times(said)}

    def _progress(self, rank: int, said: Line) -> Line:
        line: Line = {"done": _count(said, "done"), "of": _count(said, "of")}
        if "collective" in said:
            line |= {"collective": _text(said, "collective"), "size_bytes": _count(said, "size_bytes")}
        return line

    def _error(self, rank: int, said: Line) -> Line:
        line: Line = {"what": _text(said, "what")}
        if said.get("hint") is not None:
            line["hint"] = _text(said, "hint")
        for key in ("status", "peer"):
            line[key] = None if said.get(key) is None else _count(said, key)
        return line

    def _done(self, rank: int, said: Line) -> Line:
        return {}

    def _step(self, rank: int, said: Line, kind: str) -> Mapping[str, Any]:
        step: Mapping[str, Any] = self._steps[_one_of(said, "step", range(len(self._steps)))]
        if step["kind"] != kind:
            raise Unexpected(f"step {said['step']} is of another kind")
        if kind == "collective" and rank not in (step["ranks"] or range(self._ranks)):
            raise Unexpected(f"step {said['step']} is not for this rank")
        return step


_CHECKS: dict[str, Callable[[Sayings, int, Line], Line]] = {
    "collective": Sayings._collective,
    "flow": Sayings._flow,
    "progress": Sayings._progress,
    "error": Sayings._error,
    "done": Sayings._done,
}


def _lines_of(step: Mapping[str, Any]) -> int:
    """How many results one rank has of a step, at most; of a warmup those that are wrong."""
    if step["kind"] == "flows":
        return 2 * len(step["flows"])
    return int(len(step["sizes"]) * (step["warmup"] + step["iterations"]))


def _one_of(said: Line, key: str, allowed: Any) -> Any:
    value = said.get(key)
    if isinstance(value, (int, str)) and not isinstance(value, bool) and value in allowed:
        return value
    raise Unexpected(f"{key}: not what its plan has")


def _count(said: Line, key: str) -> int:
    value = said.get(key)
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _COUNT_MAX:
        return value
    raise Unexpected(f"{key}: not a count")


def _time(said: Line, key: str) -> float:
    value = said.get(key)
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= _TIME_MAX_NS:  # no NaN
        return value
    raise Unexpected(f"{key}: not a time")


def _times(said: Line) -> Line:
    start, end = _time(said, "start_ns"), _time(said, "end_ns")
    if end < start:
        raise Unexpected("end_ns: before start_ns")
    return {"start_ns": start, "end_ns": end}


def _text(said: Line, key: str) -> str:
    value = said.get(key)
    if isinstance(value, str):
        return printable(value[:TEXT_MAX])
    raise Unexpected(f"{key}: not a text")
