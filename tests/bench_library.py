"""Benchmarks of a collective library: `.venv/bin/python -m tests.bench_library`, and part of tests/bench.py.

- predicted: seconds for an all-reduce of 1 GiB by a ring of 80 ranks (10 x 8) on 16 channels, by one prediction in a
  process that has everything imported, and by `testbed predict` as a command. Target: 1 s
- emulated: wall time of a whole run, fabric and all, of an all-reduce of 64 MiB by a ring of 2 x 8 ranks on 16
  channels. Target: 60 s
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

from testbed.experiment import loads
from testbed.predict import predict
from testbed.run.run import run
from tests.bench_predict import measured
from tests.bench_timed import timed

RING = "library: {name: nccl, version: 2.29.2, channels: 16, env: {NCCL_ALGO: Ring, NCCL_PROTO: Simple}}"
RUNS = 3


def _text(servers: int, size: str) -> str:
    fabric = f"fabric: {{topology: {{rail: {{servers: {servers}, gpus: 8, spines: 1}}}}}}"
    return f"name: bench-library\n{fabric}\n{RING}\nworkload: [{{collective: all_reduce, sizes: [{size}]}}]\n"


def predicted() -> dict[str, float]:
    """The least of several, as other things may go on."""
    text = _text(10, "1GiB")

    def once() -> float:
        began = time.monotonic()
        (figure,) = predict(loads(text)).figures
        assert "ring/simple/16" in figure.algorithm, figure.algorithm
        return time.monotonic() - began

    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "ring.yaml"
        file.write_text(text)
        command = min(measured("-m", "testbed", "predict", str(file))["cpu_s"] for _ in range(RUNS))
    return {"predicted_80_ranks_s": min(once() for _ in range(RUNS)), "predict_80_ranks_command_cpu_s": command}


def emulated() -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        wall, done = timed(lambda: run(loads(_text(2, "64MiB")), Path(folder) / "run"))
        assert not any(row["wrong"] for row in done.results)
        return {"emulated_16_ranks_wall_s": wall}


def library() -> dict[str, float]:
    return {**predicted(), **emulated()}


if __name__ == "__main__":
    for name, value in library().items():
        print(f"{name:40} {value:8.2f}", flush=True)
