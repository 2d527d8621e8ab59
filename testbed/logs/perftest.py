"""perftest: `ib_write_bw`, `ib_send_bw`, `ib_write_lat`, `ib_send_lat`.

Latency is half a round trip, and `t_typical` its median. Bandwidth is in MiB/s although it says MB/sec, or in Gb/s
(`--report_gbits`); of both directions (`-b`) the sum is printed.
"""

from __future__ import annotations

from collections.abc import Iterable

from testbed.logs.row import Link, Log, number, whole
from testbed.logs.text import Line


class Perftest:
    """Reads the lines of one file into a log."""

    def __init__(self, file: str, log: Log) -> None:
        self._file, self._log = file, log
        self._columns: list[str] = []
        self._both = False
        self.found = 0

    def read(self, lines: Iterable[Line]) -> None:
        for line in lines:
            text = line.text.strip()
            if text.endswith("Test") and ("BW" in text or "Latency" in text):
                self._both, self._columns = "Bidirectional" in text, []
                if "Read" in text or "Atomic" in text or "ATOMIC" in text:
                    self._log.warn(f"{self._file}:{line.number}", f"{text[:60]} is left out: collectives write")
                    self._columns = ["-"]
            elif text.startswith("#bytes"):
                if self._columns != ["-"]:
                    self._columns = _columns(text)
            elif self._columns and text[:1].isdigit():
                self._values(line, text.split())

    def _values(self, line: Line, words: list[str]) -> None:
        if self._columns == ["-"] or len(words) < min(3, len(self._columns)):
            return
        cells = dict(zip(self._columns, words, strict=False))
        size = whole(cells["#bytes"])
        if not size:
            return
        self.found += 1
        typical = number(cells.get("t_typical[usec]", "")) or number(cells.get("t_avg[usec]", ""))
        if typical:
            self._log.links.append(Link(self._file, line.number, size, latency_ns=typical * 1000.0))
            return
        unit = next((key for key in cells if key.startswith("average[")), None)
        average = number(cells[unit]) if unit else None
        if not average:
            self._log.leave_out("without a rate")
            return
        rate = average * (1e9 if unit == "average[Gb/sec]" else 8 * (1 << 20))
        each = 2 if self._both else 1
        messages = number(cells.get("MsgRate[Mpps]", ""))
        self._log.links.append(
            Link(
                self._file, line.number, size, rate_bps=rate / each,
                messages_per_s=None if messages is None else messages * 1e6 / each,
            )
        )  # fmt: skip


def _columns(text: str) -> list[str]:
    """`BW average[Gb/sec]` and `99% percentile[usec]` are one column each."""
    for two in ("BW peak", "BW average", "BW Peak", "BW Average"):
        text = text.replace(two, two.split()[1].lower())
    return text.replace("% percentile", "%percentile").split()
