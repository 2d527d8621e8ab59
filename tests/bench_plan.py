"""Benchmark of planning: `.venv/bin/python -m tests.bench_plan`, and part of tests/bench.py.

CPU time and memory of a Python that plans an all-reduce by `auto` among 1,024 ranks of a clos with 16 spines, imports
and the fabric's graph and all, and its CPU time over that of 64 ranks.  Targets: 4 s and 300 MB.
"""

from __future__ import annotations

import json

from tests.bench_predict import measured
from tests.bench_ranks import CLOS, all_reduce, experiment

PLAN = """
import gc, sys
gc.set_threshold(100_000)  # as every command has it (testbed/cli.py)
from testbed.experiment import loads
from testbed.plan.steps.plan import plan
plan(loads(sys.argv[1])).told()
"""


def planned(ranks: int, size: str = "64KiB") -> dict[str, float]:
    """`cpu_s` and `mb`."""
    return measured("-c", PLAN, experiment(*CLOS[ranks], all_reduce("auto", size)))


def plan_1024() -> dict[str, float]:
    large, small = planned(1024), planned(64)
    return {**large, "over_64_ranks": large["cpu_s"] / small["cpu_s"]}


if __name__ == "__main__":
    print(json.dumps(plan_1024()))
