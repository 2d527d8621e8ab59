"""The figures in what a program has printed, if that is the table of a benchmark: perftest, OSU, nccl-tests."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from testbed.logs import perftest
from testbed.logs.nccl_tests import NcclTests
from testbed.logs.osu import Osu
from testbed.logs.row import BUSBW, Log
from testbed.logs.text import lines


class Figure(NamedTuple):
    """Of messages of a size: what one takes (a latency, or a message's share of a stream's time), and the rate."""

    size_bytes: int
    time_ns: float
    rate_Bps: float | None
    messages_per_s: float | None = None
    busbw_Bps: float | None = None

    def dilated(self, by: float) -> Figure:
        """The same on a clock of which so many seconds go by in one of the program's."""
        rates = (rate and rate * by for rate in self[2:])
        return Figure(self.size_bytes, self.time_ns / by, *rates)


def figures(text: str) -> list[Figure]:
    """Those of the first kind of table that is found; empty if there is none."""
    for of in (_perftest, _osu, _nccl_tests):
        if found := list(of(text)):
            return found
    return []


def _perftest(text: str) -> Iterator[Figure]:
    for one in perftest.values(lines(text)):
        if one.latency_ns:
            yield Figure(one.size_bytes, one.latency_ns, None)
        elif one.rate_bps:
            rate = one.rate_bps / 8
            yield Figure(one.size_bytes, one.size_bytes * 1e9 / rate, rate, one.messages_per_s)


def _osu(text: str) -> Iterator[Figure]:
    log = Log()
    Osu("", log, any_library=True).read(lines(text))
    for link in log.links:
        if link.latency_ns:
            yield Figure(link.size_bytes, link.latency_ns, None)
        elif link.rate_bps:
            yield Figure(link.size_bytes, link.size_bytes * 8e9 / link.rate_bps, link.rate_bps / 8)
    for row in log.rows:
        yield Figure(row.size_bytes, row.time_ns, None)


def _nccl_tests(text: str) -> Iterator[Figure]:
    log = Log()
    NcclTests("", log).read(lines(text))
    for row in log.rows:
        rate = row.size_bytes * 1e9 / row.time_ns
        ranks = row.nodes * row.gpus if row.nodes and row.gpus else None
        yield Figure(row.size_bytes, row.time_ns, rate, None, rate * BUSBW[row.collective](ranks) if ranks else None)
