"""A fabric whose ranks have containers with limits and folders of a user, and commands in them."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from testbed.containers.worker import Worker
from testbed.experiment import loads
from testbed.fabric.lab import Lab
from tests.parts.machine import ROOT, traces

RAIL = """
name: rail
fabric: {topology: {rail: {servers: 2, gpus: 2, spines: 1}}}
workers: {cpus: 0.5, memory: 256MiB, bind: [FOLDER/data, "FOLDER/data/out:rw", FOLDER/notes]}
"""


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    """A user's folder, closed to others; in it what is bound and what is not."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as name:
        folder = Path(name)
        for file in ("data/all", "data/mine", "data/out/old", "other/all", "notes"):
            (folder / file).parent.mkdir(exist_ok=True, parents=True)
            (folder / file).write_text(f"{file}\n")
        (folder / "data" / "mine").chmod(0o600)
        (folder / "data" / "out").chmod(0o777)
        yield folder


@pytest.fixture(scope="module")
def lab(folder: Path) -> Iterator[Lab]:
    lab = Lab.up(loads(RAIL.replace("FOLDER", str(folder)), "rail.yaml"))
    try:
        yield lab
    finally:
        lab.down()
    assert traces(lab.id) == []


def inside(lab: Lab, *argv: str, rank: int = 1) -> str:
    """Output of a command in a rank's container, started as `testbed exec` does it but by this process."""
    run, env = lab.exec_command(rank, ["env", "--", *argv], tty=False)
    done = subprocess.run(run, env=env, capture_output=True, text=True, cwd=ROOT, timeout=300)
    assert done.returncode == 0, f"code {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def shell(lab: Lab, script: str, rank: int = 1) -> str:
    return inside(lab, "sh", "-c", script, rank=rank)


def python(lab: Lab, source: str, rank: int = 1) -> str:
    return inside(lab, sys.executable, "-c", source, rank=rank)


@contextmanager
def worker(lab: Lab, rank: int, *argv: str) -> Iterator[tuple[Worker, Path]]:
    """A started worker and the file that has its output."""
    out = lab.dir / f"test{rank}.out"
    with out.open("wb") as stdout:
        w = lab.start_worker(rank, argv, stdout=stdout, stderr=stdout)
    try:
        yield w, out
    finally:
        w.kill()
        w.wait()
