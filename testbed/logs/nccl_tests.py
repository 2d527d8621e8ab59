"""nccl-tests' and rccl-tests' tables: of any version, several in a file, cut, with NCCL's own lines between.

The time is that of the faster of out of place and in place. A row is left out, and counted, whose result was wrong,
which has no time or no size, which was cut, or whose bandwidths are not those of its time.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from testbed.logs.row import BUSBW, Log, Row, named, number, whole
from testbed.logs.text import Line

_PREAMBLE = ("size", "count", "type", "redop", "root")
_HALF = ("time", "algbw", "busbw", "#wrong")
STANDARD = _PREAMBLE + _HALF + _HALF

_DEVICE = re.compile(
    r"#\s*Rank\s+(\d{1,7})\s+(?:Group\s+\d+\s+)?Pid\s+\d+ on\s+(\S+) device\s+\d+ \[[^\]]*\] ?(.*)", re.ASCII
)
_STARTING = re.compile(r"#\s*Collective test starting:\s*(\S+)")
_VERSION = re.compile(r"nccl-library=(\d{4,7})\b|(?:NCCL|RCCL) version\s*:?\s*(\d{1,3}\.\d{1,3}\.\d{1,3})\b", re.ASCII)
_COMMAND = re.compile(r"(?:^|[\s/'\"])((?:[a-z]+_)*[a-z]+)_perf(?:_mpi)?\b")
_SETTING = re.compile(r"(agg iters|iters|graph|average): *(\d{1,9})", re.ASCII)
_ROW = re.compile(r"\s*\d+\s+\d+\s+[a-z][a-z0-9_]*\s+(?:[a-z]+|-?\d+)\b")
_OFF = 0.06
"""What bandwidths may differ from those of the time: they have two digits at least."""


@dataclass
class _Test:
    """One program's table, as far as it has come."""

    collective: str | None = None
    columns: tuple[str, ...] = STANDARD
    hosts: dict[int, str] = field(default_factory=dict)
    iterations: int | None = None
    aggregated: int = 1
    rows: int = 0
    broken: list[str] = field(default_factory=list)
    """A row whose other half is still to come."""
    begun: int = 0


class NcclTests:
    """Reads the lines of one file into a log, one process's after the other's."""

    def __init__(self, file: str, log: Log, told: str | None = None) -> None:
        self._file, self._log, self._told = file, log, told
        self._tests: dict[str, _Test] = {}
        self._of_name = next(filter(None, map(named, re.findall(r"[A-Za-z_]+", file.rsplit("/", 1)[-1]))), None)
        self.found = 0

    def read(self, lines: Iterable[Line]) -> None:
        for line in lines:
            test = self._tests.setdefault(line.tag, _Test())
            text = line.text.strip()
            if text.startswith("#"):
                self._comment(test, line, text)
            elif text:
                self._row(line, test, text)
        for test in self._tests.values():
            self._cut(test)

    def _comment(self, test: _Test, line: Line, text: str) -> None:
        self._cut(test)
        begins = text.startswith(("# nThread", "# nccl-tests version")) or _STARTING.match(text)
        if begins and (test.rows or (text.startswith("# nThread") and test.hosts)):
            self._tests[line.tag] = test = _Test(collective=None if test.rows else test.collective)
        if found := _STARTING.match(text):
            test.collective = named(found.group(1)) or found.group(1)
        for key, value in _SETTING.findall(text) if "nThread" in text else ():
            if key == "iters":
                test.iterations = int(value)
            elif key == "agg iters":
                test.aggregated = int(value)
        if found := _DEVICE.match(text):
            rank = int(found.group(1))
            if test.rows:
                self._tests[line.tag] = test = _Test()
            if rank in test.hosts and test.hosts[rank] != found.group(2):
                what = f"rank {rank} is on two hosts: each process was started by itself, and not as one job"
                self._log.warn(f"{self._file}:{line.number}", what)
            test.hosts[rank] = found.group(2)
            self._log.devices.add(found.group(3).strip()[:80])
        self._version(text, line)
        words = tuple("#wrong" if word in ("error", "errors") else word for word in text.lstrip("# ").split())
        if words[:3] == _PREAMBLE[:3]:
            test.columns = tuple("time" if word == "cputime" else word for word in words)

    def _version(self, written: str, line: Line) -> None:
        if not (found := _VERSION.search(written)):
            return
        if found.group().startswith("RCCL"):
            self._log.library.name = "rccl"
        text = next(filter(None, found.groups()))
        if text.isdecimal():  # 22902, and before 2.9: 2804
            code = int(text)
            major, minor, patch = (code // 10_000, code // 100 % 100, code % 100)
            if code < 10_000:
                major, minor, patch = code // 1000, code // 100 % 10, code % 100
            text = f"{major}.{minor}.{patch}"
        library = self._log.library
        if library.version and library.version != text:
            self._log.warn(f"{self._file}:{line.number}", f"version {text}, and before it {library.version}")
        library.version = library.version or text

    def _row(self, line: Line, test: _Test, text: str) -> None:
        if not _ROW.match(text):
            if test.broken and all(number(word) is not None or word == "N/A" for word in text.split()):
                test.broken += text.split()
                self._whole(line, test)
                return
            self._cut(test)
            self._version(text, line)
            if not test.rows and (found := _COMMAND.search(text)):
                test.collective = test.collective or named(found.group(1))
            return
        self._cut(test)
        test.broken, test.begun = text.split(), line.number
        self._whole(line, test)

    def _whole(self, line: Line, test: _Test) -> None:
        """Takes what was read as a row if all of it is there."""
        words, columns = test.broken, test.columns
        if len(words) < len(columns) and len(words) == 12 and "root" in columns:
            columns = tuple(name for name in columns if name != "root")
        if "timestamp" in columns:
            columns = tuple(name for name in columns if name != "timestamp")
        if len(words) < len(columns):
            return
        number, test.broken, test.rows = test.begun, [], test.rows + 1
        self.found += 1
        self._take(f"{self._file}:{number}", number, test, dict(_numbered(columns, words)))

    def _cut(self, test: _Test) -> None:
        if test.broken:
            self._log.leave_out("cut, or not to be read", f"{self._file}:{test.begun}", "the row is cut")
            test.broken = []
            self.found += 1

    def _take(self, place: str, line: int, test: _Test, cells: dict[str, str]) -> None:
        size, wrong = whole(cells["size"]), [number(cells.get(key, "0")) or 0.0 for key in ("#wrong", "#wrong 2")]
        if not size:
            return self._log.leave_out("without a size")
        if any(wrong):
            return self._log.leave_out("with wrong results", place, f"{sum(wrong):g} elements are wrong")
        if test.aggregated > 1:
            what = f"{test.aggregated} calls were launched as one (agg iters): left out"
            return self._log.leave_out("of several calls launched as one", f"{self._file}", what)
        collective = self._told or test.collective or self._of_name
        if collective is None:
            return self._log.leave_out("of an unknown collective", place, _ASK)
        if collective not in BUSBW:
            return self._log.leave_out(f"of {collective[:40]}")
        ranks = len(test.hosts)
        times = [self._time(place, cells, end, collective, size, ranks) for end in ("", " 2") if f"time{end}" in cells]
        found = [time for time in times if time]
        if None in times:  # it contradicts itself, which has been said
            return None
        if not found:
            return self._log.leave_out("without a time")
        nodes, gpus = layout(test.hosts)
        if ranks and not nodes:
            return self._log.leave_out("of uneven nodes", place, "not all nodes have as many ranks")
        spread = number(cells.get("i_cv%", ""))
        self._log.add(
            Row(
                self._file, line, collective, size, min(found), nodes, gpus, cells["type"],
                None if spread is None else spread / 100, test.iterations,
            )
        )  # fmt: skip
        return None

    def _time(
        self, place: str, cells: dict[str, str], end: str, collective: str, size: int, ranks: int
    ) -> float | None:
        """Of one half of the row in ns; 0.0 where it has none, None where it contradicts itself, which is said."""
        time, algbw, busbw = (number(cells.get(f"{key}{end}", "")) for key in ("time", "algbw", "busbw"))
        if not time:
            return 0.0
        wanted = size / time / 1e3
        if algbw is not None and abs(algbw - wanted) > max(_OFF * wanted, 0.011):
            what = f"{size} bytes in {time:g} us are {wanted:.2f} GB/s, not {algbw:g}"
            self._log.leave_out("whose bandwidth is not that of its time", place, what)
            return None
        factor = BUSBW[collective](ranks) if ranks > 1 else None
        if factor and algbw and busbw is not None and abs(busbw - algbw * factor) > max(_OFF * busbw, 0.05):
            what = f"{collective} among {ranks} ranks has a bus bandwidth of {algbw * factor:.2f} GB/s, not {busbw:g}"
            self._log.leave_out("whose bus bandwidth is another collective's", place, what)
            return None
        return time * 1000.0


_ASK = "which collective? neither the log nor the file's name says it: --collective"


def _numbered(columns: Iterable[str], words: Iterable[str]) -> Iterable[tuple[str, str]]:
    """Columns of in-place halves as `time 2`."""
    seen: set[str] = set()
    for name, word in zip(columns, words, strict=False):
        yield (f"{name} 2" if name in seen else name), word
        seen.add(name)


def layout(hosts: dict[int, str]) -> tuple[int | None, int | None]:
    """Nodes, and ranks of each; None where they are not alike, or not all of them are named."""
    if set(hosts) != set(range(len(hosts))):
        return None, None
    names = list(hosts.values())
    each = {names.count(name) for name in set(names)}
    return (len(set(names)), each.pop()) if len(each) == 1 else (None, None)
