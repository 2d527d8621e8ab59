"""The steps of a repeated workload, from the lines that its workers print."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from testbed.base.text import printable
from testbed.live.look.steps import RankStep, Step

TEXT_MAX = 1000
_TIME_MAX_NS = 2.0**50
_COUNT_MAX = 2**53


@dataclass
class Collected:
    """What the workers of a job have said. A step is there when all its ranks have told of it."""

    ranks: Sequence[int]
    steps: list[Step] = field(default_factory=list)
    errors: dict[int, str] = field(default_factory=dict)  # by rank: why its worker gave up
    best_ns: float | None = None  # the quickest step's time
    base: int = 0  # the number of its first step: those of jobs before it stand in `steps`, too
    _open: dict[int, dict[int, RankStep]] = field(default_factory=dict)

    def take(self, of: Sequence[int], text: bytes) -> str:
        """Takes a line of a process of these ranks; returns text that is none of ours, as it may be kept."""
        try:
            line = json.loads(text)
            kind = line["kind"]
            rank = line.get("rank", of[0])
            if rank not in of:
                raise ValueError(rank)
            if kind == "pass":
                self._pass(rank, line)
            elif kind == "error":
                self.errors.setdefault(rank, printable(str(line["what"])[:TEXT_MAX]))
        except (ValueError, KeyError, TypeError, RecursionError):
            return printable(text[: TEXT_MAX * 4].decode(errors="replace"))[:TEXT_MAX]
        return ""

    def _pass(self, rank: int, line: Mapping[str, Any]) -> None:
        number = self.base + _whole(line["pass"])
        if number != self._next(rank):
            raise ValueError(number)
        start, end, host, compute = (_time(line[key]) for key in ("start_ns", "end_ns", "host_ns", "compute_ns"))
        if end < start:
            raise ValueError(end)
        wait = max(end - start - host - compute, 0.0)
        fallback = printable(str(line["fallback"])[:TEXT_MAX])
        told = RankStep(host, round(wait, 3), _whole(line["wrong"]), start, end, compute, fallback)
        ranks = self._open.setdefault(number, {})
        ranks[rank] = told
        if len(ranks) == len(self.ranks):
            del self._open[number]
            each = dict(sorted(ranks.items()))
            start, end = min(r.start_ns for r in each.values()), max(r.end_ns for r in each.values())
            self.steps.append(step := Step(number, start, end, each))
            self.best_ns = step.time_ns if self.best_ns is None else min(self.best_ns, step.time_ns)

    def _next(self, rank: int) -> int:
        """The number of the pass that this rank has to tell of next: they come in order."""
        told = [number for number, ranks in self._open.items() if rank in ranks]
        return max(told, default=len(self.steps) - 1) + 1


def _number(check: Callable[[Any], bool]) -> Callable[[Any], Any]:
    def of(value: Any) -> Any:
        if isinstance(value, bool) or not isinstance(value, int | float) or not check(value):
            raise ValueError(value)
        return value

    return of


_time = _number(lambda value: 0 <= value <= _TIME_MAX_NS)
_whole = _number(lambda value: isinstance(value, int) and 0 <= value <= _COUNT_MAX)

__all__ = ["Collected", "RankStep", "Step"]
