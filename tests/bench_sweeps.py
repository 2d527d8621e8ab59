"""Benchmark of sweeps: `.venv/bin/python -m tests.bench_sweeps`, and part of tests/bench.py.

Wall time of `testbed run` of a sweep of 12 small points one after the other, over that with `--on local:2`: most of
such a point is bringing its fabric up. Target on two quiet cores: 1.5. The median of three rounds.
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


def two_at_a_time(rounds: int = 3) -> dict[str, float]:
    """`over`: one after the other over two at a time; and both in seconds."""
    alone, at_once = zip(*((_wall_s(), _wall_s("--on", "local:2")) for _ in range(rounds)), strict=True)
    over = statistics.median(a / b for a, b in zip(alone, at_once, strict=True))
    return {"over": over, "alone_s": statistics.median(alone), "two_s": statistics.median(at_once)}


def _wall_s(*more: str) -> float:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "sweep.yaml")
        file.write_text(SWEEP)
        command = [sys.executable, "-m", "testbed", "run", str(file), "--out", str(Path(folder, "out")), *more]
        began = time.perf_counter()
        subprocess.run(command, check=True, capture_output=True)
        return time.perf_counter() - began


if __name__ == "__main__":
    for name, value in two_at_a_time().items():
        print(f"{name:10} {value:8.2f}")
