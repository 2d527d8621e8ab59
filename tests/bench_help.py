"""Benchmark of `testbed --help`, which is waited for most often. Part of tests/bench.py."""

from __future__ import annotations

import subprocess
import sys

from tests.bench_timed import timed


def help_s() -> dict[str, float]:
    """`testbed --help`, and over a Python that imports click and ends."""

    def quickest(*arguments: str) -> float:
        command = [sys.executable, *arguments]
        return min(timed(lambda: subprocess.run(command, check=True, capture_output=True))[0] for _ in range(5))

    ours, bare = quickest("-m", "testbed", "--help"), quickest("-c", "import click")
    return {"help_s": ours, "help_over_click": ours / bare}
