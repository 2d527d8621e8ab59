"""Proof: what else the machine does changes no figure of a run.

`./setup.sh prove load [--ranks N] [--size SIZE]`. An all-reduce on a clos with the virtual clock runs alone, then while
three fabrics of 104 hosts come and go beside it, then beside four processes that take all the CPU they get. All three
must end well, be called exact, and have the same `metrics_sha256`.
"""

from __future__ import annotations

import argparse
import json
import os
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PROVED = """
name: proved
fabric: {topology: {clos: {leaves: LEAVES, spines: 4, hosts_per_leaf: 16}}}
workload: [{collective: all_reduce, algorithm: ALGORITHM, sizes: [SIZE]}]
"""
NEIGHBOUR = """
name: neighbour
fabric: {topology: {clos: {leaves: 8, spines: 2, hosts_per_leaf: 13}}}
"""
FABRICS, HOGS = 3, 4


@dataclass
class Run:
    """One run: what it ran beside, and what it printed."""

    beside: str
    printed: dict[str, Any]
    wall_s: float
    came: int = 0  # fabrics that came and went meanwhile

    @property
    def row(self) -> str:
        went = f", {self.came} came and went" if self.came else ""
        verdict, sha = self.printed["fidelity"]["verdict"], self.printed["metrics_sha256"][:16]
        return f"{self.beside + went:48} {self.wall_s:8.1f} s  {verdict}  {sha}"


def measure(experiment: str, beside: str) -> Run:
    with tempfile.TemporaryDirectory(prefix="rbload-") as folder:
        file = Path(folder, "proved.yaml")
        file.write_text(experiment)
        command = [sys.executable, "-m", "testbed", "run", str(file), "--out", str(Path(folder, "run")), "--json"]
        began = time.monotonic()
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(f"prove load: {beside}: the run failed: {done.stdout}{done.stderr[-2000:]}")
        return Run(beside, json.loads(done.stdout), time.monotonic() - began)


# -- what is beside it


@contextmanager
def nothing() -> Iterator[Callable[[], int]]:
    yield lambda: 0


@contextmanager
def hogs(count: int = HOGS) -> Iterator[Callable[[], int]]:
    """Processes that compute without end."""
    tether = ["setpriv", "--pdeathsig", "KILL"]
    started = [subprocess.Popen([*tether, "sh", "-c", "while :; do :; done"]) for _ in range(count)]
    try:
        yield lambda: 0
    finally:
        for hog in started:
            hog.kill()
            hog.wait()


@contextmanager
def neighbours(count: int = FABRICS) -> Iterator[Callable[[], int]]:
    """Fabrics that come and go; gives a function that says how many have."""
    command = [sys.executable, str(Path(__file__).resolve()), "--come-and-go"]
    with tempfile.TemporaryFile("w+") as lines:
        started = [subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=lines) for _ in range(count)]

        def gone() -> int:
            lines.seek(0)
            return len(lines.read().splitlines())

        try:
            _wait(lambda: gone() >= 1 or any(one.poll() is not None for one in started))
            yield gone
        finally:
            for one in started:
                assert one.stdin is not None
                one.stdin.close()
            codes = [one.wait() for one in started]
        if any(codes):
            raise SystemExit("prove load: a neighbour failed (above)")


def _wait(condition: Callable[[], bool]) -> None:
    while not condition():
        time.sleep(0.05)


def come_and_go() -> None:
    """Brings a fabric up and takes it down, until stdin ends; a line for each."""
    from testbed.experiment import loads
    from testbed.fabric.lab import Lab

    experiment = loads(NEIGHBOUR, "neighbour.yaml")
    while not select.select([sys.stdin], [], [], 0)[0]:
        with Lab.up(experiment) as lab:
            assert len(lab.hosts) > 100
        os.write(1, b"gone\n")  # whole, whoever else writes there


def prove(experiment: str, say: Callable[[str], None] = print) -> list[Run]:
    """The same run beside nothing, fabrics and hogs."""
    runs = []
    for name, company in (("alone", nothing), (f"{FABRICS} fabrics", neighbours), (f"{HOGS} CPU hogs", hogs)):
        with company() as gone:
            before = gone()
            run = measure(experiment, name)
            run.came = gone() - before
        runs.append(run)
        say(run.row)
    return runs


def main() -> None:
    parser = argparse.ArgumentParser(prog="./setup.sh prove load", description=__doc__)
    parser.add_argument("--ranks", type=int, default=128, help="a multiple of 16")
    parser.add_argument("--size", default="1MiB")
    parser.add_argument("--algorithm", default="auto")
    parser.add_argument("--come-and-go", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.come_and_go:
        come_and_go()
        return
    named = {"LEAVES": str(options.ranks // 16), "SIZE": options.size, "ALGORITHM": options.algorithm}
    experiment = PROVED
    for name, value in named.items():
        experiment = experiment.replace(name, value)
    runs = prove(experiment)
    if {run.printed["fidelity"]["verdict"] for run in runs} != {"exact"}:
        sys.exit(f"prove load: not exact: {[run.printed['fidelity'] for run in runs]}")
    if len({run.printed["metrics_sha256"] for run in runs}) != 1:
        sys.exit("prove load: the figures differ")
    if not runs[1].came:
        sys.exit("prove load: no fabric came and went meanwhile: take more ranks, or a larger size")
    print(f"{options.ranks} ranks, {options.size}: the same figures")


if __name__ == "__main__":
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    main()
