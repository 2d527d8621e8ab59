"""Rows of logs as points that were measured: repeated ones as one, levels told apart, what looks wrong said."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median

from testbed.base.errors import InputError
from testbed.base.units import format_size
from testbed.cluster.hardware import Hardware
from testbed.logs.row import BUSBW, Log, Point, Row

APART = 0.15
"""Two levels of one point are at least so far apart, as a share of the faster."""
DROP = 0.25
"""A rate that falls by more than this share as sizes grow is said."""
LARGE = 64 << 20
FALLBACK = 0.25
"""Of the NICs' rate: large sizes below that did not go over all of them by RDMA."""


@dataclass(frozen=True)
class Measured:
    """`spread`: relative, of repeated rows or of a row's iterations; None where nothing says it."""

    point: Point
    time_ns: float
    spread: float | None
    rows: tuple[Row, ...]

    @property
    def ranks(self) -> int:
        return self.point.nodes * self.point.gpus


def measured(log: Log, hardware: Hardware, nodes: int | None, gpus: int | None) -> list[Measured]:
    """All points, in order.  `nodes` and `gpus` are of the logs that do not say them.  Raises InputError."""
    of_point: dict[Point, list[Row]] = defaultdict(list)
    for row in log.rows:
        here = (row.nodes or nodes, row.gpus or gpus)
        if not here[0] or not here[1]:
            what = "neither the log nor the command line says on how many nodes, and GPUs of each, this was measured"
            raise InputError(what, row.place, "--nodes N --gpus G")
        if here[1] > hardware.gpus:
            what = f"{here[1]} GPUs of each node took part, and a node has {hardware.gpus}"
            raise InputError(what, row.place, "--topo FILE, or --gpus G")
        if here[0] * here[1] < 2:
            log.leave_out("of a single rank")
            continue
        of_point[Point(row.collective, here[0], here[1], row.size_bytes)].append(row)
    _mixed(log, of_point)
    made = [_one(log, point, rows) for point, rows in sorted(of_point.items())]
    for series in series_of(made):
        _look(log, series, hardware)
    return made


def series_of(points: Iterable[Measured]) -> list[list[Measured]]:
    """By collective, nodes and GPUs, each by size."""
    series: dict[tuple[str, int, int], list[Measured]] = defaultdict(list)
    for one in points:
        series[one.point[:3]].append(one)
    return list(series.values())


def _mixed(log: Log, of_point: dict[Point, list[Row]]) -> None:
    for rows in of_point.values():
        types = sorted({row.dtype for row in rows if row.dtype})
        if len(types) > 1:
            log.warn(rows[-1].place, f"the same size as {' and as '.join(types)}: taken as one")


def _one(log: Log, point: Point, rows: Sequence[Row]) -> Measured:
    """Of repeated rows the median; of two levels the faster, and the other is said."""
    times = sorted(row.time_ns for row in rows)
    level = _level(times)
    if level < len(times):
        slow = [row for row in rows if row.time_ns > times[level - 1]]
        what = f"{point.collective} of {format_size(point.size_bytes)} has two levels: {len(times) - level} of"
        what += f" {len(times)} rows take {median(times[level:]) / median(times[:level]):.2f} times as long as the"
        log.warn(slow[0].place, f"{what} others (throttling, a bad cable?); they are left out")
        log.left_out["of a slower level"] += len(slow)
        rows, times = [row for row in rows if row.time_ns <= times[level - 1]], times[:level]
    spreads = [row.spread for row in rows if row.spread is not None]
    if len(times) > 2:
        middle = median(times)
        spreads.append(1.4826 * median(abs(time - middle) for time in times) / middle)
    return Measured(point, median(times), max(spreads, default=None), tuple(rows))


def _level(times: Sequence[float]) -> int:
    """How many of the sorted times are of the first level."""
    if len(times) < 4:
        return len(times)
    gaps = [(times[i] / times[i - 1], i) for i in range(2, len(times) - 1)]
    ratio, at = max(gaps)
    others = max((r for r, i in [(times[i] / times[i - 1], i) for i in range(1, len(times))] if i != at), default=1.0)
    return at if ratio > 1 + APART and ratio - 1 > 3 * (others - 1) else len(times)


def _look(log: Log, series: Sequence[Measured], hardware: Hardware) -> None:
    """Says where the rate of large sizes falls, and where it is that of TCP."""
    best, told = 0.0, False
    for one in series:
        rate = one.point.size_bytes / one.time_ns
        if one.point.size_bytes >= LARGE and rate < (1 - DROP) * best and not told:
            what = f"the rate of {one.point.collective} falls by {100 * (1 - rate / best):.0f} % at "
            what += f"{format_size(one.point.size_bytes)}: another algorithm, throttling, or a bad cable?"
            log.warn(one.rows[0].place, what)
            told = True
        best = max(best, rate)
    last = series[-1]
    nics = hardware.nics_of(last.point)
    if nics and last.point.size_bytes >= LARGE:
        per_gpu = last.point.collective in ("send_recv", "all_to_all")
        nic_bps = hardware.nic_bps * (nics / last.point.gpus if per_gpu else nics)
        busbw = last.point.size_bytes / last.time_ns * 8e9 * BUSBW[last.point.collective](last.ranks)
        if busbw < FALLBACK * nic_bps:
            what = f"{last.point.collective} reaches {busbw / 1e9:.0f} Gb/s of {nic_bps / 1e9:.0f} Gb/s of the NICs: "
            log.warn(last.rows[0].place, what + _why(log))


def _why(log: Log) -> str:
    if any("socket" in name.lower() for name in log.library.transports):
        return "NCCL says that it went over TCP (NET/Socket)"
    return "as TCP (NET/Socket) would, or without GPUDirect"
