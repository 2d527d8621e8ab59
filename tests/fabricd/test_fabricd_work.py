"""How much fabricd has to do for a worker is for the worker to pay: what piles up elsewhere does not slow it down.

Counted is the CPU time that fabricd uses, not what passes on the wall; and compared is one pile with no pile.
"""

from __future__ import annotations

import os
from array import array
from pathlib import Path

import pytest

from tests.parts.fabricd_fixture import BareFabric, RawWorker, bare_fabric
from tests.parts.ring_fabric import Ring, ranks
from workloads import wire

pytestmark = pytest.mark.skipif(os.geteuid() != 0 or not Path("/dev/net/tun").exists(), reason="needs root and TAP")

LATER = 10**12  # emulated time that does not come


def cpu_s(f: BareFabric) -> float:
    tasks = Path(f"/proc/{f.pid}/task").iterdir()
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9


def syncs(f: BareFabric, worker: RawWorker, count: int = 3900) -> float:
    """The CPU time of so many SYNCs in one packet, all answered at once."""
    before = cpu_s(f)
    left = len(worker.wait(1, wire.FOREVER, *(wire.command(wire.SYNC, tag, 1) for tag in range(count))))
    while left < count:
        left += len(worker.wait(1))
    return cpu_s(f) - before


def test_records_for_later_do_not_slow_down_those_of_now() -> None:
    with bare_fabric("star", {"hosts": 2}) as f:
        f.start(0)
        worker = f.worker(0)
        syncs(f, worker)
        alone = min(syncs(f, worker) for _ in range(3))
        worker.send(wire.command(wire.COMPUTE, 1, LATER))
        for _ in range(30):
            worker.send(*(wire.command(wire.COMPUTE, n, 1000) for n in range(2000)))
        behind = min(syncs(f, worker) for _ in range(3))
        assert behind < 3 * alone, f"{alone} s, and {behind} s with 60,000 records for later"


def test_groups_that_never_come_together_do_not_slow_down_those_that_work() -> None:
    with ranks(4) as (f, members):

        def work() -> float:
            """The least of three times, on a group that comes behind all others."""
            group = Ring(members, "float32", 1 << 20)
            times = []
            for _ in range(4):
                before = cpu_s(f)
                group.run(1 << 18)
                times.append(cpu_s(f) - before)
            return min(times[1:])

        alone = work()
        one, everybody = members[0], array("I", [m.rank for m in members]).tobytes()
        args = (1 << 20, wire.ELEMENTS["float32"], 0, 0, 0, 0, 0, 0)
        for first in range(0, 4000, 500):
            tags = range(10_000 + first, 10_000 + first + 500)
            one.send(*(wire.command(wire.GROUP, wire.RING, tag, 3, 4, *args, data=everybody) for tag in tags))
        beside = work()
        assert beside < 1.5 * alone, f"{alone} s, and {beside} s beside 4,000 groups that wait for members"
