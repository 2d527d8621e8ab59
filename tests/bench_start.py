"""Benchmark of ranks that begin: `.venv/bin/python -m tests.bench_start [RANKS ...]`, and part of tests/bench.py.

The workers' processor time of a run that moves 1 KiB once, so that little but their beginning is in it: forked from a
process that has imported what they run, and each started as a Python of its own. In turns, the medians of five. The
containers are in both; the process that forks is in the first, its imports only once.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
from pathlib import Path

from testbed.containers import forked
from testbed.experiment import loads
from testbed.run.profile import FILE
from testbed.run.run import run

ROUNDS = 5
TEXT = """
name: bench-start
fabric: {topology: {star: {hosts: RANKS}}}
workload: [{collective: all_reduce, algorithm: ring, sizes: [1KiB]}]
"""


def workers_s(ranks: int, *, fork: bool) -> float:
    """The workers' processor time of one run."""
    forked.server().refused = not fork
    with tempfile.TemporaryDirectory() as folder:
        result = run(loads(TEXT.replace("RANKS", str(ranks))), Path(folder) / "run", profile=True)
        return float(json.loads((result.folder / FILE).read_text())["busy"]["workers"])


def measure(ranks: int = 8) -> dict[str, float]:
    """`forked_s`, `started_s` and `ratio`, of so many ranks."""
    found: dict[bool, list[float]] = {True: [], False: []}
    for _ in range(ROUNDS):
        for fork, times in found.items():
            times.append(workers_s(ranks, fork=fork))
    forked_s, started_s = statistics.median(found[True]), statistics.median(found[False])
    return {"ranks": ranks, "forked_s": forked_s, "started_s": started_s, "ratio": forked_s / started_s}


if __name__ == "__main__":
    for number in [int(word) for word in sys.argv[1:]] or [2, 8, 16]:
        print(json.dumps(measure(number)), flush=True)
