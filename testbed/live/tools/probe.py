"""Probes: how long a small message takes, how fast a large one goes, and the first between all NICs.

A probe is an RDMA write of a NIC's own, in real frames, from post to completion: there and back, with the PCIe of both
ends. It goes under the NIC's congestion control, over queue pairs of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Any

from testbed.live.look.table import Table
from testbed.live.tools.site import Site
from testbed.live.tools.tool import Tool
from testbed.words import kinds
from testbed.words.entry import Parameter
from testbed.words.kinds import Wrong

SMALL_BYTES = 64
GAP_NS = 2_000.0
TIMEOUT_NS = 200_000.0
COUNT = 5
_MOST = 1 << 31

Flow = tuple[int, int, int, float]


def sent(site: Site, flows: Sequence[Flow], timeout_ns: float) -> list[float | None]:
    """Sends (from, to, bytes, start) and returns how long each took, None for one that has not ended in time."""
    requested = [list(flow) for flow in flows]
    name = f"probe{round(site.now_ns() * 1000)}"
    last = max(start for *_, start in flows)
    site.request("inject", fault=name, primitive="traffic", flows=requested, operator=True)
    results: list[list[Any]] = []

    def done() -> bool:
        results[:] = site.request("traffic_results", fault=name)["flows"]
        return len(results) == len(flows) and all(end is not None for *_, end in results)

    try:
        site.begin()
        site.until(done, last + timeout_ns)
    finally:
        site.request("heal", fault=name)
    left = iter(results)  # in the order of the flows, without those that have not started
    row = next(left, None)
    took: list[float | None] = []
    for flow in flows:
        started = row is not None and row[:3] == list(flow[:3])
        took.append(row[4] - row[3] if row is not None and started and row[4] is not None else None)
        row = next(left, None) if started else row
    return took


def check_pair(site: Site, a: int, b: int) -> None:
    if a == b:
        raise Wrong(f"{a} and {b} are the same NIC", f"two of the ranks 0 to {len(site.fabric.nics) - 1}")


def lat(
    site: Site, a: int, b: int, count: int = COUNT, size: float = SMALL_BYTES, timeout: float = TIMEOUT_NS
) -> list[Table]:
    """As `ib_write_lat`, but there and back."""
    check_pair(site, a, b)
    took = sent(site, [(a, b, int(size), k * GAP_NS) for k in range(count)], timeout)
    return [Table("lat", "", [{"from": a, "to": b, "bytes": int(size), **_summary(took)}], ("from", "to", "bytes"))]


def bw(site: Site, a: int, b: int, size: float = 1 << 20, timeout: float = 10 * TIMEOUT_NS) -> list[Table]:
    """As `ib_write_bw`, of one message."""
    check_pair(site, a, b)
    (took,) = sent(site, [(a, b, int(size), 0.0)], timeout)
    rate = None if took is None else round(size * 8 / took, 3)
    row = {"from": a, "to": b, "bytes": int(size), "time_us": _us(took), "Gbps": rate, "lost": int(took is None)}
    return [Table("bw", "", [row], ("from", "to", "bytes"))]


def mesh(site: Site, count: int = 3, timeout: float = TIMEOUT_NS) -> list[Table]:
    """As a pingmesh: in each turn every NIC writes to the one so many ranks on, so that no two meet at a NIC."""
    n = len(site.fabric.nics)
    if n < 2:
        raise Wrong("this fabric has one NIC", "a mesh needs two")
    turns = [(turn, step) for turn in range(count) for step in range(1, n)]
    flows = [
        (a, (a + step) % n, SMALL_BYTES, (turn * (n - 1) + step - 1) * GAP_NS) for turn, step in turns for a in range(n)
    ]
    by_pair: dict[tuple[int, int], list[float | None]] = {}
    for (a, b, *_), took in zip(flows, sent(site, flows, timeout), strict=True):
        by_pair.setdefault((a, b), []).append(took)
    of = {pair: _summary(times) for pair, times in by_pair.items()}
    table = [{"from": a, **{str(b): of[a, b]["median_us"] if a != b else None for b in range(n)}} for a in range(n)]
    pairs = [{"from": a, "to": b, **of[a, b]} for a, b in sorted(of)]
    slow = sorted(pairs, key=lambda row: (-row["lost"], -(row["max_us"] or 0)))
    return [
        Table("mesh", "Median there and back (us), from row to column", table, ("from",)),
        Table("slowest", "The slowest pairs", slow[: max(n, 8)], ("from", "to")),
    ]


def _summary(took: Sequence[float | None]) -> dict[str, Any]:
    known = [t for t in took if t is not None]
    least, middle, most = (min(known), median(known), max(known)) if known else (None, None, None)
    return {"min_us": _us(least), "median_us": _us(middle), "max_us": _us(most), "lost": len(took) - len(known)}


def _us(ns: float | None) -> float | None:
    return None if ns is None else round(ns / 1000, 3)


A = Parameter("a", kinds.RANK, "From: a rank, or its NIC's name.", required=True)
B = Parameter("b", kinds.RANK, "To: likewise.", required=True)
_TIMEOUT = Parameter("timeout", kinds.TIME, "Emulated time after which one is lost.", option=True)


def _count(default: int) -> Parameter:
    return Parameter(
        "count", kinds.Number("count", "N", 1, 1000), f"How many, one each 2 us (default: {default}).", option=True
    )


_SIZE = kinds.Quantity("size", "SIZE", kinds.SIZE.of, 1, _MOST)

TOOLS = (
    Tool(
        words="probe lat", about="Measure how long a small RDMA write takes, there and back.", use=lat,
        parameters=(A, B, _count(COUNT), Parameter("size", _SIZE, "Of each (default: 64B).", option=True), _TIMEOUT),
        samples=("0 3",),
    ),
    Tool(
        words="probe bw", about="Measure how fast a large RDMA write goes.", use=bw,
        parameters=(A, B, Parameter("size", _SIZE, "Of the message (default: 1MiB).", option=True), _TIMEOUT),
        samples=("0 3", "0 3 --size 4MiB"),
    ),
    Tool(
        words="probe mesh", about="Measure small RDMA writes between all NICs, there and back.", use=mesh,
        parameters=(_count(3), _TIMEOUT),
    ),
)  # fmt: skip
