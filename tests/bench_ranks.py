"""Benchmarks of size: the quickstart by the command line, and runs of 256 and 1,024 ranks. Part of tests/bench.py."""

from __future__ import annotations

import json
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
from testbed.run.run import run

ROOT = Path(__file__).parent.parent
RUNS = 3
MANY = """
name: bench-many-ranks
fabric: {topology: {clos: {leaves: LEAVES, spines: SPINES, hosts_per_leaf: HOSTS}}}
workload:
  - WORKLOAD
"""
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
    began = time.monotonic()
    _fidelity(text)
    return time.monotonic() - began


def hop_us(text: str) -> float:
    """Wall time of a frame's way through a switch, from the first frame to the last, in microseconds."""
    seen = _fidelity(text)
    return float(seen["forwarding_wall_ns"] / seen["frame_hops"] / 1000)


def _fidelity(text: str) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        result = run(loads(text), Path(folder) / "run", Progress())
        assert not any(row["wrong"] for row in result.results)
        counters = json.loads((Path(result.folder) / "counters.json").read_text())
    return dict(counters["fidelity"])


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
    many, few = experiment(32, 16, 32, flows(1024, "8MiB")), experiment(2, 1, 4, flows(8, "64MiB"))
    return {
        "quickstart_wall_s": statistics.median(quickstart_s() for _ in range(RUNS)),
        "all_reduce_256_ranks_16MiB_wall_s": statistics.median(whole_s(large) for _ in range(RUNS)),
        "all_reduce_1024_ranks_64KiB_wall_s": statistics.median(wall_s for wall_s, _ in seen),
        "all_reduce_1024_ranks_memory_GB": max(memory_gb for _, memory_gb in seen),
        "hop_cost_1024_ranks_over_8": hop_us(many) / statistics.median(hop_us(few) for _ in range(RUNS)),
    }
