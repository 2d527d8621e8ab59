"""perftest: `ib_write_bw`, `ib_send_lat` and the like, of writes, sends, reads and atomics.

Latency is half a round trip, and `t_typical` its median. Bandwidth is in MiB/s although it says MB/sec, or in Gb/s
(`--report_gbits`); of both directions (`-b`) the sum is printed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from testbed.logs.row import Link, Log, number, whole
from testbed.logs.text import Line


class Values(NamedTuple):
    """A line of a table: `test` is its title, `both` says whether both ends send; None is what the line does not say.

    `rate_bps` and `messages_per_s` are as printed: of both directions the sum.
    """

    line: int
    test: str
    both: bool
    size_bytes: int
    iterations: int | None
    latency_ns: float | None
    rate_bps: float | None
    messages_per_s: float | None


def values(lines: Iterable[Line]) -> Iterator[Values]:
    """The lines of all tables."""
    test, columns = "", list[str]()
    for line in lines:
        text = line.text.strip()
        if text.endswith("Test") and ("BW" in text or "Latency" in text):
            test, columns = text, []
        elif text.startswith("#bytes"):
            columns = _columns(text)
        elif columns and text[:1].isdigit() and (found := _values(line.number, test, columns, text.split())):
            yield found


def _values(line: int, test: str, columns: list[str], words: list[str]) -> Values | None:
    cells = dict(zip(columns, words, strict=False))
    size = whole(cells["#bytes"])
    if not size or len(words) < min(3, len(columns)):
        return None
    typical = number(cells.get("t_typical[usec]", "")) or number(cells.get("t_avg[usec]", ""))
    unit = next((key for key in cells if key.startswith("average[")), None)
    average = number(cells[unit]) if unit else None
    rate = average * (1e9 if unit == "average[Gb/sec]" else 8 * (1 << 20)) if average else None
    messages = number(cells.get("MsgRate[Mpps]", ""))
    return Values(
        line, test, "Bidirectional" in test, size, whole(cells.get("#iterations", "")),
        typical * 1000.0 if typical else None, None if typical else rate, messages and messages * 1e6,
    )  # fmt: skip


class Perftest:
    """Reads the lines of one file into a log: what writes and sends take, as collectives do."""

    def __init__(self, file: str, log: Log) -> None:
        self._file, self._log = file, log
        self.found = 0

    def read(self, lines: Iterable[Line]) -> None:
        left_out = ""
        for one in values(lines):
            if any(word in one.test for word in ("Read", "Atomic", "ATOMIC")):
                if one.test != left_out:
                    self._log.warn(f"{self._file}:{one.line}", f"{one.test[:60]} is left out: collectives write")
                left_out = one.test
                continue
            self.found += 1
            self._take(one)

    def _take(self, one: Values) -> None:
        if one.latency_ns:
            self._log.links.append(Link(self._file, one.line, one.size_bytes, latency_ns=one.latency_ns))
            return
        if not one.rate_bps:
            self._log.leave_out("without a rate")
            return
        each = 2 if one.both else 1
        messages = None if one.messages_per_s is None else one.messages_per_s / each
        of = {"rate_bps": one.rate_bps / each, "messages_per_s": messages}
        self._log.links.append(Link(self._file, one.line, one.size_bytes, **of))


def _columns(text: str) -> list[str]:
    """`BW average[Gb/sec]` and `99% percentile[usec]` are one column each."""
    for two in ("BW peak", "BW average", "BW Peak", "BW Average"):
        text = text.replace(two, two.split()[1].lower())
    return text.replace("% percentile", "%percentile").split()
