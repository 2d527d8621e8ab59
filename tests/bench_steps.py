"""Benchmarks of steps of tasks: `.venv/bin/python -m tests.bench_steps`, and part of tests/bench.py.

- tasks: CPU time of everything that a run takes with 1,000 tasks a rank, all-reduces one after the other, over that of
  as many iterations of one all-reduce; the least of three runs each
- hybrid step: wall time of a run of a training step, fabric and all: tensor 8 along rails x pipeline 8 inside servers,
  44 micro-batches, ten million frames through switches
"""

from __future__ import annotations

import json
import os
import resource
import tempfile
import time
from pathlib import Path

from testbed.base.progress import Progress
from testbed.experiment import loads
from testbed.run.run import run

RUNS = 3
HYBRID = """
name: bench-hybrid
fabric: {topology: {rail: {servers: 8, gpus: 8, spines: 1}}}
costs: {reduce: 8Tbps}
workload:
- train:
    model: {layers: 8, hidden: 1024, heads: 16, seq: 1024}
    gpu: {preset: h100}
    batch: {count: 44}
    parallel: {tensor: 8, pipeline: 8}
    place: {tensor: rail, pipeline: scale_up}
    groups: {tensor: {algorithm: ring}}
"""


def tasks_over_iterations(count: int = 1000) -> float:
    """All-reduces of 64 KiB on 4 ranks."""
    head = "name: bench-tasks\nfabric: {topology: {star: {hosts: 4}}}\nworkload:\n"
    plain = f"{head}- {{collective: all_reduce, algorithm: ring, sizes: [64KiB], iterations: {count}}}\n"
    one = "collective: all_reduce, algorithm: ring, group: all, size: 64KiB"
    listed = ", ".join(f"{{id: t{k}, {one}}}" for k in range(count))
    tasks = f"{head}- tasks: {{groups: {{all: [[0, 1, 2, 3]]}}, list: [{listed}]}}\n"
    return min(_run_cpu_s(tasks) for _ in range(RUNS)) / min(_run_cpu_s(plain) for _ in range(RUNS))


def _run_cpu_s(text: str) -> float:
    """Ours, and that of all processes that a run starts."""

    def used() -> float:
        its = [resource.getrusage(who) for who in (resource.RUSAGE_CHILDREN, resource.RUSAGE_SELF)]
        return sum(one.ru_utime + one.ru_stime for one in its)

    with tempfile.TemporaryDirectory() as folder:
        before = used()
        run(loads(text), Path(folder) / "run")
        return used() - before


def hybrid_step() -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        began = time.monotonic()
        done = run(loads(HYBRID), Path(folder) / "run", Progress())
        took = time.monotonic() - began
        assert not any(row["wrong"] for row in done.results)
        seen = json.loads((Path(done.folder) / "counters.json").read_text())["fidelity"]
    return {"hybrid_step_64_ranks_wall_s": took, "hybrid_step_64_ranks_frame_hops": float(seen["frame_hops"])}


def measure() -> dict[str, float]:
    return {"tasks_over_iterations_cpu": tasks_over_iterations(), **hybrid_step()}


def main() -> None:
    print(f"{'CPUs, load before':32} {os.cpu_count()}, {os.getloadavg()[0]:.2f}", flush=True)
    for name, value in measure().items():
        print(f"{name:32} {value:12.2f}", flush=True)


if __name__ == "__main__":
    main()
