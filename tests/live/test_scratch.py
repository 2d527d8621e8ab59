"""Folders for what is only needed while it is made, and who is killed meanwhile."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path

import pytest

from testbed.machine import ownership
from testbed.machine.scratch import scratch
from tests.parts.machine import ROOT, TESTBED, cli, wait_until
from workloads.torch import launch

EXPERIMENT = """
name: killed
fabric: {topology: {star: {hosts: 2}}}
workload: [{torch: sleeps.py, gpu: {flops: 1T}}]
"""
SLEEPS = """
import os, pathlib, time
pathlib.Path("here", os.environ["RANK"]).symlink_to(str(os.getpid()))
time.sleep(600)
"""


def notes(folder: Path) -> list[Path]:
    return [note for note in ownership.RUN_DIR.glob(".scratch-*") if note.read_text() == str(folder)]


def of_ours(folder: Path) -> list[str]:
    """Command lines of processes whose working folder that is."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if os.readlink(process / "cwd") == str(folder):
                found.append((process / "cmdline").read_bytes().replace(b"\0", b" ").decode())
        except OSError:  # it has just ended
            continue
    return found


def test_it_goes_with_its_use() -> None:
    with scratch("test") as folder:
        (folder / "deep").mkdir()
        assert notes(folder) and folder.stat().st_mode & 0o777 == 0o700
        assert str(folder) not in json.loads(cli("clean", "--json"))["folders"]  # its user lives
        assert folder.exists()
    assert not notes(folder) and not folder.exists()


@pytest.mark.skipif(not launch.available(), reason="PyTorch is not installed here: ./setup.sh torch installs it")
def test_nothing_is_left_of_a_run_that_was_killed_while_its_script_ran(tmp_path: Path) -> None:
    (tmp_path / "here").mkdir()
    (tmp_path / "sleeps.py").write_text(SLEEPS)
    (tmp_path / "killed.yaml").write_text(EXPERIMENT)
    with subprocess.Popen([*TESTBED, "run", str(tmp_path / "killed.yaml")], cwd=ROOT, stderr=subprocess.PIPE) as run:
        wait_until(lambda: len(os.listdir(tmp_path / "here")) == 2, "both ranks to be there")
        (folder,) = {Path(spec).parent for line in of_ours(tmp_path) for spec in re.findall(r"\S+/spec.json", line)}
        run.kill()
    wait_until(lambda: not of_ours(tmp_path), "its ranks to end")
    assert folder.exists() and notes(folder)
    assert f"removed {folder}\n" in cli("clean")
    assert not folder.exists() and not notes(folder)
