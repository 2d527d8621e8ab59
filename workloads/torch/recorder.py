"""What one rank of a script does, as rows: computations, collectives and messages, each on a stream.

A row's number is its place.  As on a GPU, whoever issues work does not wait for it: work waits on its stream for what
was issued there before, and for what the stream was told to wait for.  Only where the host itself waits (`item()`), all
that it issues later comes after.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from types import FrameType
from typing import Any

MAIN = "main"

Row = dict[str, Any]


class Stream:
    """Work in order.  `waits` are rows that the next work on it has to wait for."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.last: int | None = None
        self.waits: set[int] = set()
        self.host = 0  # of how many of the host's waits it knows

    @property
    def position(self) -> frozenset[int]:
        """The rows that have to end before all that was put on it so far is done."""
        return frozenset(self.waits | ({self.last} if self.last is not None else set()))


class Recorder:
    """One rank's rows, its streams, and the groups that it is in."""

    def __init__(self, script: str = "") -> None:
        self.script = script
        self.rows: list[Row] = []
        self.groups: list[dict[str, Any]] = []
        self.main = Stream(MAIN)
        self.current = self.main
        self.streams = {MAIN: self.main}
        self.phase = "forward"
        self._host: dict[str, int] = {}  # stream -> the last row on it that the host has waited for
        self._waited = 0

    def stream(self, name: str) -> Stream:
        """The stream of that name."""
        return self.streams.setdefault(name, Stream(name))

    def charge(self, flops: int, nbytes: int, dtype: str) -> None:
        """The rank computes on the current stream.  What follows without a wait or another kind is one computation."""
        stream = self.current
        last = self.rows[stream.last] if stream.last is not None else None
        fresh = stream.waits or stream.host != self._waited
        if last is None or fresh or last["do"] != "compute" or last["kind"] != self.phase or last.get("closed"):
            last = {"do": "compute", "kind": self.phase, "work": {}}
            self._put(last, stream)
        key = (flops, nbytes, dtype)
        last["work"][key] = last["work"].get(key, 0) + 1

    def collective(self, group: int, name: str, nbytes: int, dtype: str, op: str | None, kind: str) -> int:
        """A collective with a group, after what is on the current stream; returns its row."""
        row = {"do": "collective", "kind": kind, "group": group, "collective": name, "size_bytes": nbytes}
        return self._issue(row | {"dtype": dtype, "op": op}, self.stream(f"group {group}"))

    def message(self, do: str, peer: int, nbytes: int, tag: str) -> int:
        """A message to or from a rank; messages do not wait for each other."""
        row = {"do": do, "kind": do, "peer": peer, "size_bytes": nbytes, "tag": tag, "line": self._line()}
        return self._issue(row, self.stream(f"{do} {peer}"))

    def _line(self) -> int | None:
        """Where the script is."""
        frame: FrameType | None = sys._getframe()
        while frame is not None and frame.f_code.co_filename != self.script:
            frame = frame.f_back
        return frame.f_lineno if frame is not None else None

    def wait(self, rows: Iterable[int]) -> None:
        """The current stream goes on when these have ended."""
        self.current.waits.update(rows)

    def host_waits(self, rows: Iterable[int]) -> None:
        """Nothing is issued any more before these have ended."""
        for row in rows:
            on = self.rows[row]["stream"]
            self._host[on] = max(row, self._host.get(on, -1))
        self._waited += 1

    def model_is_called(self) -> None:
        """For the first time: what came before is the setup."""
        self._mark("called")

    def step_ends(self) -> None:
        """What follows belongs to the next step."""
        self._mark("step")

    def _mark(self, do: str) -> None:
        for stream in self.streams.values():
            if stream.last is not None:
                self.rows[stream.last]["closed"] = True
        self.rows.append({"do": do, "stream": MAIN})

    def step_goes_on(self) -> None:
        """A second optimizer follows the first at once: both are of one step."""
        if self.rows and self.rows[-1]["do"] == "step":
            self.rows.pop()

    def _issue(self, row: Row, stream: Stream) -> int:
        stream.waits.update(self.current.position)
        for row_before in self.current.position:
            self.rows[row_before]["closed"] = True  # what is computed later is no part of it
        return self._put(row, stream)

    def close(self, stream: Stream) -> frozenset[int]:
        """Its position, as something that others wait for."""
        for row in stream.position:
            self.rows[row]["closed"] = True
        return stream.position

    def _put(self, row: Row, stream: Stream) -> int:
        waits = set(stream.waits)
        if stream.host != self._waited:
            waits.update(self._host.values())
            stream.host = self._waited
        row |= {"stream": stream.name, "after": self._last_of_each(waits, stream.name)}
        self.rows.append(row)
        stream.last, stream.waits = len(self.rows) - 1, set()
        return stream.last

    def _last_of_each(self, rows: Iterable[int], own: str) -> list[int]:
        """One row of each other stream: what comes before it there has ended, too."""
        last: dict[str, int] = {}
        for row in rows:
            on = self.rows[row]["stream"]
            last[on] = max(row, last.get(on, row))
        return sorted(row for on, row in last.items() if on != own)

    def recorded(self) -> dict[str, Any]:
        """All of it as plain data."""
        rows = []
        for row in self.rows:
            row = {key: value for key, value in row.items() if key != "closed"}
            if row["do"] == "compute":
                row["work"] = [[*key, count] for key, count in row["work"].items()]
            rows.append(row)
        return {"rows": rows, "groups": self.groups}
