"""OSU's micro-benchmarks: point to point as what NICs do, collectives of NCCL as rows.

Collectives of an MPI library are that library's: they are counted, and not taken for NCCL's.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from testbed.logs.row import Link, Log, Row, named, number, whole
from testbed.logs.text import Line

HEAD = re.compile(
    r"#\s*OSU (\S+) (.*?)\s*(?:Latency |Bandwidth |Bi-Directional |Bi-?Bandwidth )*Test(?: v([\d.]+))?\s*$"
)


class Osu:
    """Reads the lines of one file into a log; `nodes` and `gpus` no such log says.

    `any_library`: collectives of an MPI library, too.
    """

    def __init__(self, file: str, log: Log, *, any_library: bool = False) -> None:
        self._file, self._log, self._any = file, log, any_library
        self._what, self._library = "", ""
        self.found = 0

    def read(self, lines: Iterable[Line]) -> None:
        for line in lines:
            text = line.text.strip()
            if found := re.match(r"#\s*OSU (\S+) (.+)", text):
                self._library, self._what = found.group(1).upper(), found.group(2).lower()
            elif self._what and text and not text.startswith("#"):
                self._values(line, text.split())

    def _values(self, line: Line, words: list[str]) -> None:
        values = [number(word) for word in words]
        if len(words) < 2 or None in values:
            return
        self.found += 1
        size, value = whole(words[0]), values[1]
        place = f"{self._file}:{line.number}"
        if not size:
            return self._log.leave_out("without a size")
        if not value:
            return self._log.leave_out("without a time")
        if "bi-directional" in self._what or "bibw" in self._what:
            self._log.links.append(Link(self._file, line.number, size, rate_bps=value * 8e6 / 2))  # the sum of both
        elif "bandwidth" in self._what:
            self._log.links.append(Link(self._file, line.number, size, rate_bps=value * 8e6))  # MB/s of 10^6
        elif collective := named(self._what.split(" latency")[0].split(" test")[0].replace("-", "")):
            if not (self._any or "NCCL" in self._library or "XCCL" in self._library):
                what = "collectives of MPI are left out: they are not NCCL's"
                return self._log.leave_out("of an MPI library", self._file, what)
            self._log.add(Row(self._file, line.number, collective, size, value * 1000.0, None, None, iterations=None))
        elif "latency" in self._what:
            self._log.links.append(Link(self._file, line.number, size, latency_ns=value * 1000.0))
        else:
            self._log.leave_out("of another benchmark", place, f"OSU {self._what[:60]} is not read")
        return None
