"""Benchmark of predictions: `.venv/bin/python -m tests.bench_predict`, and part of tests/bench.py.

CPU time and memory of `testbed predict` as a command: a torus of 64 x 64 x 64, 1 GiB, dimension by dimension and by one
ring of NICs.  Targets: 10 s and 1 GB.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

TORUS = """
name: bench-predict
fabric: {topology: {torus: {dims: [64, 64, 64]}}}
workload:
- {collective: all_reduce, algorithm: torus, sizes: [1GiB]}
- {collective: all_reduce, algorithm: direct_reduce, sizes: [1GiB]}
"""


def predict_torus() -> dict[str, float]:
    """`cpu_s` and `mb`."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "torus.yaml"
        file.write_text(TORUS)
        with subprocess.Popen(
            [sys.executable, "-m", "testbed", "predict", str(file), "--json"], stdout=subprocess.DEVNULL
        ) as command:
            _, status, used = os.wait4(command.pid, 0)
            command.returncode = os.waitstatus_to_exitcode(status)
    if command.returncode:
        raise RuntimeError(f"testbed predict ended with {command.returncode}")
    return {"cpu_s": used.ru_utime + used.ru_stime, "mb": used.ru_maxrss / 1024}


if __name__ == "__main__":
    print(json.dumps(predict_torus()))
