"""Benchmark of predictions: `.venv/bin/python -m tests.bench_predict`, and part of tests/bench.py.

CPU time and memory of `testbed predict` as a command: a torus of 64 x 64 x 64, 1 GiB, dimension by dimension and by one
ring of NICs.  Targets: 10 s and 1 GB.
"""

from __future__ import annotations

import json
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


# A process' memory as wait4() has it begins with that of the one which has started it: this one is small
MEASURED = """
import json, os, subprocess, sys
command = subprocess.Popen(sys.argv[1:], stdout=subprocess.DEVNULL)
_, status, used = os.wait4(command.pid, 0)
print(json.dumps([os.waitstatus_to_exitcode(status), used.ru_utime + used.ru_stime, used.ru_maxrss / 1024]))
"""


def measured(*arguments: str) -> dict[str, float]:
    """`cpu_s` and `mb` of a Python with these arguments."""
    command = [sys.executable, "-c", MEASURED, sys.executable, *arguments]
    code, cpu_s, mb = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    if code:
        raise RuntimeError(f"{' '.join(arguments)} ended with {code}")
    return {"cpu_s": cpu_s, "mb": mb}


def predict_torus() -> dict[str, float]:
    """`cpu_s` and `mb`."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "torus.yaml"
        file.write_text(TORUS)
        return measured("-m", "testbed", "predict", str(file), "--json")


if __name__ == "__main__":
    print(json.dumps(predict_torus()))
