"""Checks what workers print. They are not trusted, and their output reaches files, figures and a terminal.

A JSON line of a known kind must agree with the plan key by key; further keys are left out. Anything else is text: its
control characters are escaped, and only so much of it is kept.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from testbed.base.text import printable

TEXT_MAX = 1000  # characters of one message
KEPT_BYTES = 16 << 20  # of a rank's text, in its log
_COUNT_MAX = 2**53
_COURSE_MAX = 64
_TIME_MAX_NS = 2**60 / 1000  # as fabricd's DURATION_MAX: thirteen days
_WAITING_MAX = 16  # tasks of a rank of which it is said for whom they wait
_OF_COLLECTIVES = ("host_ns", "sent_bytes", "tx_bytes", "rx_bytes")

Line = dict[str, Any]


class UnexpectedLine(Exception):
    """A line that the plan does not allow; the text says why."""


class OutputParser:
    """Tells lines from text, for the ranks of one plan, and counts both."""

    def __init__(self, plan: Mapping[str, Any]) -> None:
        self._steps: Sequence[Mapping[str, Any]] = plan["steps"]
        self._ranks: int = plan["ranks"]
        self._most = sum(_LINES[step["kind"]](step) for step in self._steps)
        self._measured: Counter[int] = Counter()
        self._kept: Counter[int] = Counter()

    def speaker(self, ranks: Sequence[int], text: bytes) -> int:
        """Which of the ranks that share a process has printed a line: the one that it names, else the first."""
        with suppress(ValueError, RecursionError):
            raw = json.loads(text)
            if isinstance(raw, dict) and isinstance(rank := raw.get("rank"), int) and rank in ranks:
                return rank
        return ranks[0]

    def line(self, rank: int, text: bytes) -> Line | None:
        """The line, checked and with `rank`; None if it is mere text. Raises UnexpectedLine."""
        try:
            raw = json.loads(text)
        except (ValueError, RecursionError):
            return None
        if not isinstance(raw, dict) or not isinstance(kind := raw.get("kind"), str) or kind not in _CHECKS:
            return None
        line = {"kind": kind, **_CHECKS[kind](self, rank, raw), "rank": rank}
        if kind in ("collective", "flow", "program", "tasks", "timeline"):
            self._measured[rank] += 1
            if self._measured[rank] > self._most:
                raise UnexpectedLine(f"more than the {self._most} results that its plan has")
        return line

    def text(self, rank: int, text: bytes) -> str:
        """Text as it is to be kept; empty when the rank has printed enough."""
        if self._kept[rank] > KEPT_BYTES:
            return ""
        self._kept[rank] += len(text) + 1
        if self._kept[rank] > KEPT_BYTES:
            return f"[more than {KEPT_BYTES >> 20} MiB: nothing else of what this rank says is kept]"
        return printable(text.decode(errors="replace"))

    # -- by kind

    def _collective(self, rank: int, raw: Line) -> Line:
        step = self._step(rank, raw, "collective")
        chosen = {choice["algorithm"] for choice in (step.get("chosen") or {}).values()}
        line = {
            "step": raw["step"],
            "collective": _one_of(raw, "collective", (step["collective"],)),
            "algorithm": _one_of(raw, "algorithm", chosen or (step["algorithm"],)),
            "size_bytes": _one_of(raw, "size_bytes", step["sizes"]),
            "iteration": _one_of(raw, "iteration", range(-step["warmup"], step["iterations"])),
            "wrong": _count(raw, "wrong"),
            **_times(raw),
        }
        groups = [n for n, group in enumerate(step.get("groups") or ()) if rank in group["ranks"]]
        if groups:
            line["group"] = _one_of(raw, "group", groups)
        if raw.get("fallback") is not None:
            line["fallback"] = _text(raw, "fallback")
        for key in _OF_COLLECTIVES:
            if raw.get(key) is not None:
                line[key] = _time(raw, key) if key.endswith("_ns") else _count(raw, key)
        return line

    def _flow(self, rank: int, raw: Line) -> Line:
        step = self._step(rank, raw, "flows")
        number = _one_of(raw, "flow", range(len(step["flows"])))
        flow = step["flows"][number]
        if rank not in (flow["from"], flow["to"]):
            raise UnexpectedLine(f"flow {number} is between other ranks")
        line = {key: _one_of(raw, key, (flow[key],)) for key in ("from", "to")}
        line["size_bytes"] = _one_of(raw, "size_bytes", (flow["size_bytes"],))
        if "role" in raw:
            line["role"] = _one_of(raw, "role", ("sender", "receiver"))
        if raw.get("course") is not None:
            line["course"] = _course(raw["course"], flow["size_bytes"])
        return {"step": raw["step"], "flow": number, **line, "wrong": _count(raw, "wrong"), **_times(raw)}

    def _tasks(self, rank: int, raw: Line) -> Line:
        step = self._step(rank, raw, "tasks")
        iteration = _one_of(raw, "iteration", range(-step["warmup"], step["iterations"]))
        line = {"step": raw["step"], "iteration": iteration, "wrong": _count(raw, "wrong"), **_times(raw)}
        if raw.get("fallback") is not None:
            line["fallback"] = _text(raw, "fallback")
        return line | {"host_ns": _time(raw, "host_ns"), "sent_bytes": _count(raw, "sent_bytes")}

    def _program(self, rank: int, raw: Line) -> Line:
        """`code`: None of one that was ended by us, negative for the signal that ended it."""
        code = raw.get("code")
        if code is not None and (type(code) is not int or not -64 <= code <= 255):
            raise UnexpectedLine("code: not that of a process")
        return {**self._of_program(rank, raw), "code": code, **_times(raw)}

    def _said(self, rank: int, raw: Line) -> Line:
        """Some of what a program has printed, in the order in which it did."""
        text = raw.get("text")
        if not isinstance(text, str):
            raise UnexpectedLine("text: not a text")
        self._kept[rank] += len(text)
        kept = "" if self._kept[rank] > KEPT_BYTES else text
        return {**self._of_program(rank, raw), "output": _one_of(raw, "output", ("out", "err")), "text": kept}

    def _of_program(self, rank: int, raw: Line) -> Line:
        step = self._step(rank, raw, "program")
        ours = [one["number"] for one in step["processes"] if one["rank"] == rank]
        return {"step": raw["step"], "program": _one_of(raw, "program", ours)}

    def _timeline(self, rank: int, raw: Line) -> Line:
        """Start, end (ps) and wrong elements of some of a rank's tasks, in the order of its list."""
        step = self._step(rank, raw, "tasks")
        count = len(step["tasks"][str(rank)])
        first = _one_of(raw, "first", range(0, max(count, 1)))
        times = raw.get("times")
        if not isinstance(times, list) or not len(times) <= count - first:
            raise UnexpectedLine("times: not of the tasks that its plan has")
        for entry in times:
            if entry is None:  # no task of this iteration
                continue
            if not isinstance(entry, list) or len(entry) != 3:
                raise UnexpectedLine("times: not start, end and wrong elements")
            start, end = (_time({"times": ps / 1000 if type(ps) is int else None}, "times") for ps in entry[:2])
            _count({"times": entry[2]}, "times")
            if end < start:
                raise UnexpectedLine("times: an end before its start")
        iteration = _one_of(raw, "iteration", range(-step["warmup"], step["iterations"]))
        return {"step": raw["step"], "iteration": iteration, "first": first, "times": times}

    def _waiting(self, rank: int, raw: Line) -> Line:
        """Tasks that have begun, and the ranks for which each waits."""
        step = self._step(rank, raw, "tasks")
        about = step["about"][str(rank)]
        tasks = raw.get("tasks")
        if not isinstance(tasks, list):
            raise UnexpectedLine("tasks: no list")
        waiting = []
        for entry in tasks[:_WAITING_MAX]:
            if not isinstance(entry, list) or len(entry) != 2 or not isinstance(entry[1], list):
                raise UnexpectedLine("tasks: not a number and ranks")
            number = _one_of({"task": entry[0]}, "task", range(len(about)))
            ranks = [_one_of({"rank": r}, "rank", range(self._ranks)) for r in entry[1]]
            waiting.append({"task": about[number], "ranks": ranks})
        return {"step": raw["step"], "tasks": waiting}

    def _progress(self, rank: int, raw: Line) -> Line:
        line: Line = {"done": _count(raw, "done"), "of": _count(raw, "of")}
        if "collective" not in raw and "iteration" in raw:
            line["iteration"] = raw["iteration"] if isinstance(raw["iteration"], int) else 0
        if "collective" in raw:
            line |= {"collective": _text(raw, "collective"), "size_bytes": _count(raw, "size_bytes")}
        return line

    def _error(self, rank: int, raw: Line) -> Line:
        line: Line = {"what": _text(raw, "what")}
        if raw.get("hint") is not None:
            line["hint"] = _text(raw, "hint")
        for key in ("status", "peer"):
            line[key] = None if raw.get(key) is None else _count(raw, key)
        return line

    def _done(self, rank: int, raw: Line) -> Line:
        return {}

    def _step(self, rank: int, raw: Line, kind: str) -> Mapping[str, Any]:
        step: Mapping[str, Any] = self._steps[_one_of(raw, "step", range(len(self._steps)))]
        if step["kind"] != kind:
            raise UnexpectedLine(f"step {raw['step']} is of another kind")
        if rank not in (step.get("ranks", [rank]) or range(self._ranks)):
            raise UnexpectedLine(f"step {raw['step']} is not for this rank")
        return step


_CHECKS: dict[str, Callable[[OutputParser, int, Line], Line]] = {
    "collective": OutputParser._collective,
    "flow": OutputParser._flow,
    "tasks": OutputParser._tasks,
    "program": OutputParser._program,
    "said": OutputParser._said,
    "timeline": OutputParser._timeline,
    "waiting": OutputParser._waiting,
    "progress": OutputParser._progress,
    "error": OutputParser._error,
    "done": OutputParser._done,
}


_LINES: dict[str, Callable[[Mapping[str, Any]], int]] = {
    "collective": lambda step: len(step["sizes"]) * (step["warmup"] + step["iterations"]),
    "flows": lambda step: 2 * len(step["flows"]),
    "program": lambda step: len(step["processes"]),
    "tasks": lambda step: (
        (1 + max(-(-len(tasks) // 1000) for tasks in step["tasks"].values()))  # its timeline in several lines
        * (step["warmup"] + step["iterations"])
    ),
}
"""How many results one rank has of a step, at most; of a warmup those that are wrong."""


def _one_of(raw: Line, key: str, allowed: Any) -> Any:
    value = raw.get(key)
    if isinstance(value, (int, str)) and not isinstance(value, bool) and value in allowed:
        return value
    raise UnexpectedLine(f"{key}: not what its plan has")


def _count(raw: Line, key: str) -> int:
    value = raw.get(key)
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _COUNT_MAX:
        return value
    raise UnexpectedLine(f"{key}: not a count")


def _time(raw: Line, key: str) -> float:
    value = raw.get(key)
    if isinstance(value, int | float) and not isinstance(value, bool) and value >= 0:  # no NaN
        if value <= _TIME_MAX_NS:
            return value
        raise UnexpectedLine(f"{key}: later than thirteen days of emulated time, where the clock ends")
    raise UnexpectedLine(f"{key}: not a time")


def _times(raw: Line) -> Line:
    start, end = _time(raw, "start_ns"), _time(raw, "end_ns")
    if end < start:
        raise UnexpectedLine("end_ns: before start_ns")
    return {"start_ns": start, "end_ns": end}


def _course(points: Any, size: int) -> list[tuple[int, float]]:
    """How far a flow was when: bytes and times that only grow."""
    checked: list[tuple[int, float]] = []
    for point in points if isinstance(points, list) and len(points) <= _COURSE_MAX else [None]:
        if not isinstance(point, list) or len(point) != 2:
            raise UnexpectedLine("course: not a list of bytes and times")
        came, at = _count({"course": point[0]}, "course"), _time({"course": point[1]}, "course")
        if came > size or (checked and (came <= checked[-1][0] or at < checked[-1][1])):
            raise UnexpectedLine("course: not a flow's, which goes on")
        checked.append((came, at))
    return checked


def _text(raw: Line, key: str) -> str:
    value = raw.get(key)
    if isinstance(value, str):
        return printable(value[:TEXT_MAX])
    raise UnexpectedLine(f"{key}: not a text")
