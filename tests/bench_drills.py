"""Benchmarks of drills: `.venv/bin/python -m tests.bench_drills`, and part of tests/bench.py.

- first prompt: wall time from `testbed drill start lost/dirty-optics` on a terminal to its first prompt (8 ranks)
- advance: wall time of `advance 300us` at that prompt, to the next one: four steps of its job

Medians of five games, each on a terminal of its own. What the machine does beside it counts: both are what somebody
who plays waits for.
"""

from __future__ import annotations

import json
import os
import pty
import select
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parent.parent
DRILL = "lost/dirty-optics"
GAMES = 5
PATIENCE_S = 120.0


def drills() -> dict[str, float]:
    """In seconds."""
    seen = [_game() for _ in range(GAMES)]
    return {name: statistics.median(one[name] for one in seen) for name in seen[0]}


def _game() -> dict[str, float]:
    ours, its = pty.openpty()
    with tempfile.TemporaryDirectory() as folder:
        words = ["drill", "start", DRILL, "--seed", "7Q4", "--out", f"{folder}/game.log"]
        began = time.monotonic()
        game = subprocess.Popen(
            [sys.executable, "-m", "testbed", *words], cwd=ROOT, stdin=its, stdout=its, stderr=its,
            start_new_session=True, env={**os.environ, "TERM": "dumb", "HOME": folder},
        )  # fmt: skip
        os.close(its)
        try:
            found = {"drill_first_prompt_s": _prompt(ours, began, rb"700us")}
            began = time.monotonic()
            os.write(ours, b"advance 300us\n")
            found["drill_advance_300us_s"] = _prompt(ours, began, rb"1ms")
            os.write(ours, b"give-up\nquit\n")
            _end(ours, game)
            return found
        finally:
            if game.poll() is None:
                os.killpg(game.pid, signal.SIGTERM)
                game.wait()
            os.close(ours)


def _prompt(terminal: int, began: float, clock: bytes) -> float:
    """How long until a prompt with that clock stands there."""
    heard = b""
    while b"drill %b> " % clock not in heard:
        heard += _heard(terminal, began)
    return time.monotonic() - began


def _end(terminal: int, game: subprocess.Popen[bytes]) -> None:
    began = time.monotonic()
    try:
        while game.poll() is None:
            _heard(terminal, began)
    except OSError:  # it has closed its end
        game.wait(PATIENCE_S)


def _heard(terminal: int, began: float) -> bytes:
    if not select.select([terminal], [], [], 1.0)[0]:
        if time.monotonic() - began > PATIENCE_S:
            raise TimeoutError(f"no prompt within {PATIENCE_S:.0f} s")
        return b""
    return os.read(terminal, 1 << 16)


if __name__ == "__main__":
    print(json.dumps(drills(), indent=2))
