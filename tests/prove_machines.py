"""Proof: a sweep over three machines, one of which is killed, gives what one machine gives, and leaves nothing.

`./setup.sh prove machines [--times N] [--seed SEED]`. Each time 24 points run on three machines (namespaces with an
sshd of their own). At a moment that the seed draws one of them is killed: all of it, or its worker with its points.
Then all rows must be those of one machine, and no fabric, process or folder may be left, here or on the others.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from testbed.experiment import loads
from testbed.run.sweep import run_sweep
from tests.parts.machine import wait_until
from tests.parts.small_sweep import SWEEP, Noted
from tests.parts.ssh_machines import Machine, SshMachines

POINTS = 24
MACHINES = 3
LATEST = POINTS - 2 * MACHINES  # points that are done when one is killed, at most: the sweep is not over then
WITHIN_S = 1.0  # after the last of these, at most


def main() -> int:
    parser = argparse.ArgumentParser(prog="./setup.sh prove machines")
    parser.add_argument("--times", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    text = SWEEP + f"sweep: {{seed: {list(range(1, POINTS + 1))}}}\n"
    with tempfile.TemporaryDirectory(prefix="sw-prove-") as folder:
        _, alone = run_sweep(loads(text), Path(folder, "alone"), Noted())
    for n in range(asked.times):
        began = time.monotonic()
        said = once(text, alone, random.Random(asked.seed * 1000 + n))
        print(f"{n + 1} of {asked.times}: {said}, {time.monotonic() - began:.0f} s", flush=True)
    print(f"{asked.times} times all {POINTS} points, the same figures, and nothing left")
    return 0


def once(text: str, alone: list[dict[str, Any]], draw: random.Random) -> str:
    """One sweep; says what was killed when."""
    before = folders()
    with tempfile.TemporaryDirectory(prefix="sw-prove-") as folder, SshMachines(Path(folder, "cluster")) as cluster:
        machines = [cluster.add() for _ in range(MACHINES)]
        path = Path(folder, "sweep.yaml")
        path.write_text(text)
        line = ("run", str(path), "--on", str(cluster.file(points=2)), "--out", str(Path(folder, "out")), "--json")
        victim, whole, after = draw.choice(machines), draw.random() < 0.5, draw.randint(0, LATEST)
        pause = draw.uniform(0, WITHIN_S)
        with cluster.begin(*line) as process:
            wait_until(victim.fabrics, "a fabric on the machine that is to be killed", 120)
            assert process.stderr is not None
            said = ""
            while after and f"{after} of {POINTS} points done" not in said and (more := process.stderr.readline()):
                said += more
            time.sleep(pause)
            over = process.poll() is not None
            kill(victim, whole)
            out, err = process.communicate(timeout=600)
        assert process.returncode == 0, said + err
        assert json.loads(out)["points"] == alone, "other figures than one machine's"
        for machine in machines:
            if machine is not victim or not whole:
                wait_until(lambda m=machine: not m.processes("machines.worker"), "the end of its worker")  # type: ignore[misc]
                assert machine.fabrics() == [], f"left on {machine.address}: {machine.fabrics()}"
                assert machine.folders() == [], f"left on {machine.address}: {machine.folders()}"
        assert folders() <= before, f"left here: {folders() - before}"
    what = "machine" if whole else "worker and points"
    return f"{what} killed {pause:.2f} s after {after} points{' (it was over)' if over else ''}"


def kill(machine: Machine, whole: bool) -> None:
    if whole:
        machine.kill()
        return
    for pid in (*machine.processes("machines.worker"), *machine.processes("forkserver")):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def folders() -> set[str]:
    return {path.name for path in Path(tempfile.gettempdir()).glob("railbed-sweep-*")}


if __name__ == "__main__":
    sys.exit(main())
