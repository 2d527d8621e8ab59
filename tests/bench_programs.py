"""What an RDMA program costs over the same bytes as a step: 1 GiB in messages of 64 KiB. Part of tests/bench.py.

By itself: `.venv/bin/python -m tests.bench_programs`. Wall time is from the first frame to the last; CPU time is that
of fabricd and of the ranks' processes. Medians of three rounds in turns.
"""

from __future__ import annotations

import json
import statistics
import tempfile
from pathlib import Path

from testbed.base.progress import Progress
from testbed.experiment import loads
from testbed.run.run import run
from tests.bench_timed import RUNS

FABRIC = """
name: bench-programs
fabric: {topology: {star: {hosts: 2}}}
workers: {memory: 3GiB}
"""
PROGRAM = "{program: [ib_write_bw, -F, -s, 64KiB, -n, 16384], servers: [0], clients: [1]}"
FLOW = "{flows: [{from: 1, to: 0, size: 1GiB}]}"


def cost(step: str) -> tuple[float, float]:
    """Wall and CPU seconds."""
    text = f"{FABRIC}workload: [{step}]\n"
    with tempfile.TemporaryDirectory() as folder:
        result = run(loads(text), Path(folder) / "run", Progress(), profile=True)
        counters = json.loads((Path(result.folder) / "counters.json").read_text())
        busy = json.loads((Path(result.folder) / "profile.json").read_text())["busy"]
    return counters["fidelity"]["forwarding_wall_ns"] / 1e9, busy["fabricd"] + busy["workers"]


def programs() -> dict[str, float]:
    rounds = [(cost(PROGRAM), cost(FLOW)) for _ in range(RUNS)]
    return {
        f"1gib_over_flow_{name}": statistics.median(program[k] / flow[k] for program, flow in rounds)
        for k, name in enumerate(("wall", "cpu"))
    }


if __name__ == "__main__":
    for name, value in programs().items():
        print(f"{name:30} {value:6.2f}")
