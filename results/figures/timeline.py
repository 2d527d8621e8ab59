"""What a step of training or serving spends its time on, from the rows of its timeline.

A rank computes, communicates, or does neither. Tasks of several streams lie over each other, so shares are lengths of
unions of intervals and no sums. What is left of a step is its bubble: `compute + exposed + bubble = step`, exactly.

A receive counts from when its send has begun: before that it waits, and nothing moves. A collective counts whole: its
parts move as the ranks come.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from statistics import fmean, median_low
from typing import Any

Row = Mapping[str, Any]
Span = tuple[int, int]
"""From, to: whole picoseconds, as sums and differences of float nanoseconds need not be exact."""

STRAGGLES = 1.05
"""Times the compute of the rank in the middle: more than that makes a straggler."""


def union(spans: Iterable[Span]) -> list[Span]:
    """The same time as spans in order that do not touch; empty ones are left out."""
    merged: list[Span] = []
    for begin, end in sorted(s for s in spans if s[0] < s[1]):
        if merged and begin <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(end, merged[-1][1])
        else:
            merged.append((begin, end))
    return merged


def without(spans: Sequence[Span], others: Sequence[Span]) -> list[Span]:
    """What of `spans` none of the others covers; both are unions."""
    left, k = [], 0
    for begin, end in spans:
        while k < len(others) and others[k][1] <= begin:
            k += 1
        at, j = begin, k
        while j < len(others) and others[j][0] < end:
            left.append((at, others[j][0]))
            at = others[j][1]
            j += 1
        left.append((at, end))
    return union(left)


def length(spans: Iterable[Span]) -> int:
    """Picoseconds in all of a union's spans."""
    return sum(end - begin for begin, end in spans)


def picoseconds(ns: float) -> int:
    """Whole picoseconds of a time in ns."""
    return round(ns * 1000)


def communicates(row: Row) -> bool:
    """Whether a row is a collective, a send or a receive; a compute has neither group nor size."""
    return bool(row.get("group")) or bool(row.get("size_bytes")) or row.get("peer") is not None


@dataclass(frozen=True)
class RankTime:
    """Where one rank's step goes: unions of spans within the step."""

    rank: int
    step: Span
    compute: list[Span]
    communication: list[Span]
    exposed: list[Span]
    bubble: list[Span]

    @property
    def step_ps(self) -> int:
        return self.step[1] - self.step[0]

    @property
    def compute_ps(self) -> int:
        return length(self.compute)

    @property
    def exposed_ps(self) -> int:
        """Communication that no compute hides."""
        return length(self.exposed)

    @property
    def bubble_ps(self) -> int:
        """Compute idle that no exposed communication covers."""
        return length(self.bubble)

    @property
    def communication_ps(self) -> int:
        return length(self.communication)

    @property
    def overlap(self) -> float | None:
        """Share of the communication that compute hides; None without communication."""
        whole = self.communication_ps
        return (whole - self.exposed_ps) / whole if whole else None

    @property
    def utilisation(self) -> float:
        return self.compute_ps / self.step_ps if self.step_ps else 0.0


@dataclass(frozen=True)
class StepTime:
    """One iteration of one step of the workload, with all of its ranks."""

    step: int
    iteration: int
    span: Span
    ranks: tuple[RankTime, ...]
    rows: tuple[Row, ...]

    @property
    def time_ns(self) -> float:
        return (self.span[1] - self.span[0]) / 1000

    @property
    def overlap(self) -> float | None:
        """Of all ranks' communication together."""
        whole = sum(r.communication_ps for r in self.ranks)
        return 1 - sum(r.exposed_ps for r in self.ranks) / whole if whole else None

    @property
    def straggler(self) -> tuple[int, float] | None:
        """The rank that computes longest, and how many times as long as the one in the middle; None if it is usual."""
        slowest = max(self.ranks, key=lambda r: (r.compute_ps, -r.rank))
        usual = median_low(r.compute_ps for r in self.ranks)
        if not usual or slowest.compute_ps <= STRAGGLES * usual:
            return None
        return slowest.rank, slowest.compute_ps / usual

    def row(self, tokens: float | None = None, ideal_ns: float | None = None) -> dict[str, Any]:
        """A line of the table of steps: times are means over ranks; `tokens` are those of one iteration.

        `ideal_ns`: what its model's FLOPs would take on all GPUs at their peak; MFU is the share of that.
        """
        straggler = self.straggler
        return {
            "step": self.step,
            "iteration": self.iteration,
            "ranks": len(self.ranks),
            "time_ns": self.time_ns,
            "compute_ns": fmean(r.compute_ps for r in self.ranks) / 1000,
            "exposed_ns": fmean(r.exposed_ps for r in self.ranks) / 1000,
            "bubble_ns": fmean(r.bubble_ps for r in self.ranks) / 1000,
            "overlap": self.overlap,
            "utilisation": fmean(r.utilisation for r in self.ranks),
            "straggler": straggler[0] if straggler else None,
            "straggles": straggler[1] if straggler else None,
            "mfu": ideal_ns / self.time_ns if ideal_ns and self.time_ns else None,
            "tokens_per_s": tokens * 1e9 / self.time_ns if tokens and self.time_ns else None,
        }


def steps(rows: Iterable[Row]) -> list[StepTime]:
    """Every iteration of every step that the rows of a timeline tell of, in order.

    A step lasts from its first task's start to its last task's end, of whatever rank.
    """
    ordered = sorted(rows, key=lambda r: (r["step"], r["iteration"]))
    times = []
    for (step, iteration), some in groupby(ordered, key=lambda r: (r["step"], r["iteration"])):
        times.append(_step(step, iteration, list(some)))
    return times


def _step(step: int, iteration: int, rows: list[Row]) -> StepTime:
    begun = moving_from(rows)
    span = min(picoseconds(r["start_ns"]) for r in rows), max(picoseconds(r["end_ns"]) for r in rows)
    by_rank: dict[int, dict[bool, list[Span]]] = defaultdict(lambda: {True: [], False: []})
    for row, begin in zip(rows, begun, strict=True):
        by_rank[row["rank"]][communicates(row)].append((begin, picoseconds(row["end_ns"])))
    ranks = [_rank(rank, span, union(of[False]), union(of[True])) for rank, of in sorted(by_rank.items())]
    return StepTime(step, iteration, span, tuple(ranks), tuple(rows))


def _rank(rank: int, span: Span, compute: list[Span], communication: list[Span]) -> RankTime:
    busy = union([*compute, *communication])
    return RankTime(rank, span, compute, communication, without(communication, compute), without(union([span]), busy))


def moving_from(rows: Sequence[Row]) -> list[int]:
    """When each task began to compute or to move data: its start; of a receive not before its send's start."""
    begun = [picoseconds(r["start_ns"]) for r in rows]
    for send, receive in messages(rows):
        begun[receive] = min(max(begun[receive], begun[send]), picoseconds(rows[receive]["end_ns"]))
    return begun


def messages(rows: Sequence[Row]) -> list[tuple[int, int]]:
    """Places of sends and of the receives that match them: by ranks and tag, in the order of the rows.

    That is the order of the ranks' lists.  Times would not do: of two streams the later message may start first.
    """
    ends: dict[tuple[Any, ...], tuple[list[int], list[int]]] = defaultdict(lambda: ([], []))
    for k, row in enumerate(rows):
        which = row["step"], row["iteration"], row.get("tag")
        if row.get("operation") == "send":
            ends[row["rank"], row["peer"], *which][0].append(k)
        elif row.get("operation") == "recv":
            ends[row["peer"], row["rank"], *which][1].append(k)
    return [pair for sends, receives in ends.values() for pair in zip(sends, receives, strict=False)]
