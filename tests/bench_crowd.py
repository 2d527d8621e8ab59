"""Benchmarks of what piles up: it costs nothing as long as it only waits. Part of tests/bench.py."""

from __future__ import annotations

from array import array

from tests.bench_timed import RUNS, cpu_s
from tests.parts.fabricd_fixture import BareFabric, RawWorker, bare_fabric
from tests.parts.ring_fabric import Ring, ranks
from workloads.verbs import wire


def _syncs_cpu_s(f: BareFabric, worker: RawWorker, count: int = 3900) -> float:
    """fabricd's CPU time for so many SYNCs in one packet, all answered at once."""
    before = cpu_s(f.pid)
    left = len(worker.wait(1, wire.FOREVER, *(wire.command(wire.SYNC, tag, 1) for tag in range(count))))
    while left < count:
        left += len(worker.wait(1))
    return cpu_s(f.pid) - before


def records_for_later() -> float:
    """SYNCs with 60,000 records for a time that does not come, over SYNCs without."""
    with bare_fabric("star", {"hosts": 2}) as f:
        f.start(0)
        worker = f.worker(0)
        _syncs_cpu_s(f, worker)
        alone = min(_syncs_cpu_s(f, worker) for _ in range(RUNS))
        worker.send(wire.command(wire.COMPUTE, 1, 10**12, 0, 0))
        for _ in range(30):
            worker.send(*(wire.command(wire.COMPUTE, n, 1000, 0, 0) for n in range(2000)))
        return min(_syncs_cpu_s(f, worker) for _ in range(RUNS)) / alone


def waiting_groups() -> float:
    """An all-reduce by the NICs with 4,000 groups beside it that never come together, over one without them."""
    with ranks(4) as (f, members):

        def work() -> float:
            group = Ring(members, "float32", 1 << 20)  # behind all others
            times = []
            for _ in range(RUNS + 1):
                before = cpu_s(f.pid)
                group.run(1 << 18)
                times.append(cpu_s(f.pid) - before)
            return min(times[1:])

        alone = work()
        everybody = array("I", [m.rank for m in members]).tobytes()
        args = (1 << 20, wire.ELEMENTS["float32"], 0, 0, 0, 0, 0, 0)
        for first in range(0, 4000, 500):
            tags = range(10_000 + first, 10_000 + first + 500)
            members[0].send(*(wire.command(wire.GROUP, b"ring", t, 3, 4, 0, *args, data=everybody) for t in tags))
        return work() / alone


def crowd() -> dict[str, float]:
    return {"records_for_later_cpu": records_for_later(), "waiting_groups_cpu": waiting_groups()}
