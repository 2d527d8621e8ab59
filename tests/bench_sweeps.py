"""Benchmarks of sweeps: `.venv/bin/python -m tests.bench_sweeps`, and part of tests/bench.py.

- two_at_a_time: wall time of `testbed run` of a sweep of 12 small points one after the other, over that with
  `--on local:2`. The points differ in their seed, so each has a fabric of its own, and most of such a point is bringing
  that up. Target on two quiet cores: 1.5. The median of three rounds.
- shared: likewise of 60 tiny points whose seed differs, over 60 that differ in their size, and share a fabric.
  Target: 2.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

POINTS = 12
SWEEP = f"""
name: bench-sweep
fabric: {{topology: {{star: {{hosts: 4}}}}}}
workload: [{{collective: all_reduce, algorithm: ring, sizes: [64KiB], iterations: 1}}]
sweep: {{seed: {list(range(1, POINTS + 1))}}}
"""
TINY = 60
OWN = f"seed: {list(range(1, TINY + 1))}"
SHARED = f"workload.0.sizes: {[[f'{n}KiB'] for n in range(1, TINY + 1)]}"


def two_at_a_time(rounds: int = 3) -> dict[str, float]:
    """`over`: one after the other over two at a time; and both in seconds."""
    alone, at_once = zip(*((_wall_s(), _wall_s("--on", "local:2")) for _ in range(rounds)), strict=True)
    over = statistics.median(a / b for a, b in zip(alone, at_once, strict=True))
    return {"over": over, "alone_s": statistics.median(alone), "two_s": statistics.median(at_once)}


def shared(rounds: int = 1) -> dict[str, float]:
    """`over`: a fabric for each point over one for all; and both in seconds."""
    tiny = SWEEP[: SWEEP.index("sweep:")].replace("hosts: 4", "hosts: 2") + "sweep: {KEY}\n"
    own, one = zip(
        *((_wall_s(text=tiny.replace("KEY", OWN)), _wall_s(text=tiny.replace("KEY", SHARED))) for _ in range(rounds)),
        strict=True,
    )
    over = statistics.median(a / b for a, b in zip(own, one, strict=True))
    return {"over": over, "own_s": statistics.median(own), "shared_s": statistics.median(one)}


def _wall_s(*more: str, text: str = SWEEP) -> float:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "sweep.yaml")
        file.write_text(text)
        command = [sys.executable, "-m", "testbed", "run", str(file), "--out", str(Path(folder, "out")), *more]
        began = time.perf_counter()
        subprocess.run(command, check=True, capture_output=True)
        return time.perf_counter() - began


if __name__ == "__main__":
    for part in (two_at_a_time, shared):
        for name, value in part().items():
            print(f"{part.__name__:14} {name:10} {value:8.2f}", flush=True)
