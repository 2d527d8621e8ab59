"""A timeline in Chrome's trace event format, which Perfetto (ui.perfetto.dev) and chrome://tracing open.

A process is a rank, a thread one of its streams; an arrow goes from a send to its receive. The format has microseconds.
Perfetto truncates them to whole nanoseconds, and drops a slice that reaches into the next one. So times here are whole
nanoseconds, written such that truncation gives them back.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

from results.figures.timeline import Row, communicates, messages

Event = dict[str, Any]


def trace(rows: Sequence[Row], name: str, clock: str = "virtual") -> dict[str, Any]:
    """The whole document; `name` is the run's."""
    ordered = sorted(rows, key=lambda r: (r["rank"], r["start_ns"], r["end_ns"]))
    return {
        "displayTimeUnit": "ns",
        "otherData": {"run": name, "clock": f"{clock}, emulated time"},
        "traceEvents": [*_names(ordered), *_slices(ordered), *_arrows(rows)],
    }


def microseconds(ns: int) -> float:
    """As the format has them; times 1000 and truncated it is `ns` again."""
    us = ns / 1000
    while int(us * 1000.0) < ns:
        us = math.nextafter(us, math.inf)
    return us


def threads(rows: Iterable[Row]) -> dict[str, int]:
    """The number of each stream, the same in all ranks: streams that compute come first."""
    computes: dict[str, bool] = {}
    for row in rows:
        computes[row["stream"]] = computes.get(row["stream"], False) or not communicates(row)
    return {stream: k for k, stream in enumerate(sorted(computes, key=lambda s: (not computes[s], s)), 1)}


def _names(rows: Sequence[Row]) -> list[Event]:
    numbers, events = threads(rows), []
    for rank in dict.fromkeys(r["rank"] for r in rows):
        events.append(_about("process_name", rank, 0, {"name": f"rank {rank}"}))
        events.append(_about("process_sort_index", rank, 0, {"sort_index": rank}))
        for stream in sorted({r["stream"] for r in rows if r["rank"] == rank}, key=numbers.__getitem__):
            events.append(_about("thread_name", rank, numbers[stream], {"name": stream}))
            events.append(_about("thread_sort_index", rank, numbers[stream], {"sort_index": numbers[stream]}))
    return events


def _about(what: str, rank: int, thread: int, args: dict[str, Any]) -> Event:
    return {"ph": "M", "name": what, "pid": rank, "tid": thread, "args": args}


def _times(row: Row) -> tuple[int, int]:
    return math.floor(row["start_ns"]), math.floor(row["end_ns"])


def _slices(rows: Sequence[Row]) -> list[Event]:
    numbers = threads(rows)
    return [_slice(row, numbers[row["stream"]]) for row in rows]


def _slice(row: Row, thread: int) -> Event:
    start, end = _times(row)
    keys = ("step", "iteration", "group", "size_bytes", "operation", "peer", "tag")
    return {
        "ph": "X",
        "name": row["task"],
        "cat": row["kind"] or ("communication" if communicates(row) else "compute"),
        "pid": row["rank"],
        "tid": thread,
        "ts": microseconds(start),
        "dur": microseconds(end - start),
        "args": {key: row[key] for key in keys if row.get(key) not in (None, "")},
    }


def _arrows(rows: Sequence[Row]) -> list[Event]:
    """From a send's start to a moment in its receive; a receive that takes no time has no moment for it."""
    numbers, events = threads(rows), []
    for number, (send, receive) in enumerate(messages(rows), 1):
        begun, (start, end) = _times(rows[send])[0], _times(rows[receive])
        at = max(begun, start)
        if at >= end or _times(rows[send])[1] <= begun:
            continue
        for phase, row, when in (("s", rows[send], begun), ("f", rows[receive], at)):
            ends = {"bp": "e"} if phase == "f" else {}
            events.append(
                {"ph": phase, "id": number, "name": "message", "cat": "message", "pid": row["rank"]}
                | {"tid": numbers[row["stream"]], "ts": microseconds(when)}
                | ends
            )
    return events
