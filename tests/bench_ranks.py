"""Benchmarks of size: the quickstart by the command line, and runs of 256 and 1,024 ranks. Part of tests/bench.py.

`.venv/bin/python -m tests.bench_ranks [RANKS ...]` prints what a frame's way through a switch costs with so many ranks
(default: 8, 64, 256, 1024), by whose processor time. Each rank sends to the next one. Of two runs that differ only in
their flows' size the difference is taken, so that nothing counts that a run does once: starting, connecting, asking
Open vSwitch for the first time.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

from testbed.base.progress import Progress
from testbed.experiment import loads
from testbed.run.profile import FILE as PROFILE
from testbed.run.run import run

ROOT = Path(__file__).parent.parent
RUNS = 3
MANY = """
name: bench-many-ranks
fabric: {topology: {clos: {leaves: LEAVES, spines: SPINES, hosts_per_leaf: HOSTS}}}
workload:
  - WORKLOAD
"""
CLOS = {8: (2, 1, 4, 64 << 20), 64: (4, 2, 16, 32 << 20), 256: (16, 8, 16, 8 << 20), 1024: (32, 16, 32, 8 << 20)}
"""Ranks -> leaves, spines, hosts of a leaf; bytes of a flow."""
OURS = ("fabricd", "workers")
PARTS = (*OURS, "Open vSwitch")
ALL_REDUCE = "{collective: all_reduce, algorithm: auto, sizes: [SIZE]}"


def experiment(leaves: int, spines: int, hosts: int, workload: str) -> str:
    """An experiment on a clos of `leaves * hosts` ranks."""
    text = MANY.replace("LEAVES", str(leaves)).replace("SPINES", str(spines)).replace("HOSTS", str(hosts))
    return text.replace("WORKLOAD", workload)


def flows(ranks: int, size: str) -> str:
    """Each rank sends to the next one."""
    return f"flows: [{', '.join(f'{{from: {i}, to: {(i + 1) % ranks}, size: {size}}}' for i in range(ranks))}]"


def whole_s(text: str) -> float:
    """Wall time of a run, its fabric and all."""
    with tempfile.TemporaryDirectory() as folder:
        began = time.monotonic()
        result = run(loads(text), Path(folder) / "run", Progress())
        assert not any(row["wrong"] for row in result.results)
        return time.monotonic() - began


def hop_cpu_us(ranks: int) -> dict[str, float]:
    """Processor time of a frame's way through a switch with so many ranks, in microseconds: whose it is."""
    leaves, spines, hosts, nbytes = CLOS[ranks]
    (few, before), (hops, busy) = (
        _busy(experiment(leaves, spines, hosts, flows(ranks, f"{size}B"))) for size in (nbytes // 8, nbytes)
    )
    return {part: (busy[part] - before[part]) / (hops - few) * 1e6 for part in PARTS}


def _busy(text: str) -> tuple[float, dict[str, float]]:
    """A run's frame-hops, and processor seconds of its parts."""
    with tempfile.TemporaryDirectory() as folder:
        result = run(loads(text), Path(folder) / "run", Progress(), profile=True)
        assert not any(row["wrong"] for row in result.results)
        counters = json.loads((Path(result.folder) / "counters.json").read_text())
        return counters["fidelity"]["frame_hops"], json.loads((Path(result.folder) / PROFILE).read_text())["busy"]


def with_memory_gb(action: Callable[[], float]) -> tuple[float, float]:
    """What `action` returns, and by how much the machine's available memory fell at most meanwhile."""
    over = threading.Event()
    least = [before := _available_bytes()]

    def watch() -> None:
        while not over.wait(0.2):
            least[0] = min(least[0], _available_bytes())

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        return action(), (before - least[0]) / 1e9
    finally:
        over.set()
        watcher.join()


def _available_bytes() -> int:
    lines = Path("/proc/meminfo").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("MemAvailable:")).split()[1]) * 1024


def quickstart_s() -> float:
    """`testbed run experiments/quickstart.yaml`, from the command to its end."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "testbed", "run", "experiments/quickstart.yaml", "--out", f"{folder}/run"]
        began = time.monotonic()
        subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
        return time.monotonic() - began


def size() -> dict[str, float]:
    """Medians; memory is the most of the runs."""
    large = experiment(16, 8, 16, ALL_REDUCE.replace("SIZE", "16MiB"))
    wide = experiment(32, 16, 32, ALL_REDUCE.replace("SIZE", "64KiB"))
    seen = [with_memory_gb(lambda: whole_s(wide)) for _ in range(RUNS)]
    few, many = (sum(hop_cpu_us(ranks)[part] for part in OURS) for ranks in (8, 1024))
    return {
        "quickstart_wall_s": statistics.median(quickstart_s() for _ in range(RUNS)),
        "all_reduce_256_ranks_16MiB_wall_s": statistics.median(whole_s(large) for _ in range(RUNS)),
        "all_reduce_1024_ranks_64KiB_wall_s": statistics.median(wall_s for wall_s, _ in seen),
        "all_reduce_1024_ranks_memory_GB": max(memory_gb for _, memory_gb in seen),
        "hop_cost_1024_ranks_over_8": many / few,
    }


def main() -> None:
    asked = [int(ranks) for ranks in sys.argv[1:]] or list(CLOS)
    print(f"{os.cpu_count()} CPUs, load before {os.getloadavg()[0]:.2f}; microseconds of processor time per frame-hop")
    print(f"{'ranks':>8}" + "".join(f"{part:>14}" for part in PARTS) + f"{'ours':>14}", flush=True)
    for ranks in asked:
        its = hop_cpu_us(ranks)
        ours = sum(its[part] for part in OURS)
        print(f"{ranks:8}" + "".join(f"{its[part]:14.2f}" for part in PARTS) + f"{ours:14.2f}", flush=True)


if __name__ == "__main__":
    main()
