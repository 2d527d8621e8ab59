"""Ordinary programs on a fabric with the real clock: one command at all ranks, Gloo, MPI."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed.experiment import load
from testbed.experiment.overrides import override
from testbed.fabric.lab import Lab
from tests.parts.machine import ROOT, TESTBED, wait_until
from workloads.torch import launch

PROGRAMS = ROOT / "experiments" / "programs"


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    with Lab.up(override(load(str(PROGRAMS / "two-hosts.yaml")), [f"workers.bind=[{PROGRAMS}]"])) as lab:
        yield lab


def everywhere(lab: Lab, *argv: str) -> subprocess.CompletedProcess[str]:
    command = [*TESTBED, "exec", "--fabric", lab.id, "--all", "--", *argv]
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=500)


def received(lab: Lab) -> list[int]:
    """Bytes that came in by each NIC's interface."""
    told = json.loads(
        subprocess.run(
            [*TESTBED, "status", "--where", "--fabric", lab.id, "--json"], capture_output=True, cwd=ROOT, check=True
        ).stdout
    )
    found = []
    for rank in told["ranks"]:
        shown = subprocess.run(
            ["nsenter", f"--net={rank['netns']}", "ip", "-s", "-j", "link", "show", rank["interface"]],
            capture_output=True, check=True,
        )  # fmt: skip
        found.append(json.loads(shown.stdout)[0]["stats64"]["rx"]["bytes"])
    return found


def test_a_command_at_all_ranks_has_torchruns_environment(lab: Lab) -> None:
    done = everywhere(
        lab, "sh", "-c", "echo $RANK/$WORLD_SIZE $LOCAL_RANK $MASTER_ADDR:$MASTER_PORT $GLOO_SOCKET_IFNAME"
    )
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == [f"[{r}] {r}/2 0 10.0.0.1:29500 h{r}-eth0" for r in range(2)]


def ended(lab: Lab, *programs: str) -> bool:
    """Whether none of these goes on in the container of any rank."""
    command = [*TESTBED, "exec", "--fabric", lab.id]
    shown = [
        subprocess.run(
            [*command, rank, "--", "ps", "-eo", "args"], capture_output=True, text=True, cwd=ROOT, check=True
        )
        for rank in "01"
    ]
    return not any(program in each.stdout for each in shown for program in programs)


def test_if_one_rank_fails_the_others_are_ended(lab: Lab) -> None:
    """Also while a child of the one that failed goes on, and holds its output."""
    done = everywhere(lab, "sh", "-c", "if [ $RANK = 0 ]; then sleep 98765 & exit 3; else sleep 98766; fi")
    assert done.returncode == 3
    wait_until(lambda: ended(lab, "sleep 98765", "sleep 98766"), "the end of the programs")


def test_who_ends_the_command_ends_its_programs(lab: Lab) -> None:
    command = [*TESTBED, "exec", "--fabric", lab.id, "--all", "--", "sh", "-c", "echo up; sleep 98767"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as started:
        assert started.stdout is not None
        assert sorted(started.stdout.readline() for _ in range(2)) == ["[0] up\n", "[1] up\n"]
        started.terminate()
        assert started.wait(60) == 128 + signal.SIGTERM
    wait_until(lambda: ended(lab, "sleep 98767"), "the end of the programs")


def test_how_programs_end_is_told_as_a_shell_does(lab: Lab) -> None:
    assert everywhere(lab, "sh", "-c", "exit 130").returncode == 130
    assert everywhere(lab, "sh", "-c", "kill -9 $$").returncode == 137
    assert everywhere(lab, "there-is-no-such-command").returncode == 127


def test_gloo_goes_over_the_fabric(lab: Lab) -> None:
    if not launch.available():
        pytest.skip("PyTorch is not installed here: ./setup.sh torch installs torch==2.13.0+cpu if pip can find it")
    before = received(lab)
    done = everywhere(lab, sys.executable, str(PROGRAMS / "allreduce_gloo.py"))
    assert done.returncode == 0, done.stdout
    assert sorted(line for line in done.stdout.splitlines() if "sum" in line) == [
        f"[{r}] sum 3.0 3.0" for r in range(2)
    ]
    assert all(now - then > 4096 * 4 for now, then in zip(received(lab), before, strict=True))


def mpirun(lab: Lab, *argv: str, **env: str) -> subprocess.CompletedProcess[str]:
    if shutil.which("mpirun") is None:
        pytest.skip("mpirun is not installed: apt-get install openmpi-bin")
    version = subprocess.run(["mpirun", "--version"], capture_output=True, text=True).stdout
    if "Open MPI" not in version:
        pytest.skip(f"mpirun is not Open MPI's (apt-get install openmpi-bin): {version[:60]!r}")
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    return subprocess.run(
        [PROGRAMS / "mpirun.sh", "--host", "h0,h1", *argv, "/usr/bin/python3", str(PROGRAMS / "allreduce_mpi.py")],
        env={**os.environ, "PATH": path, "FABRIC": lab.id, **env},
        capture_output=True, text=True, cwd=ROOT, timeout=500,
    )  # fmt: skip


def test_mpi_goes_over_the_fabric(lab: Lab) -> None:
    before = received(lab)
    done = mpirun(lab)
    assert done.returncode == 0, done.stderr[-3000:]
    assert sorted(done.stdout.splitlines()) == [f"sum {r} 2 3.0 3.0" for r in range(2)]
    assert all(now - then > 4096 * 8 for now, then in zip(received(lab), before, strict=True))


def test_mpi_goes_by_rdma_over_ucx(lab: Lab) -> None:
    """UCX says which transports it has chosen; the sums are what they are by TCP."""
    done = mpirun(lab, "-x", "UCX_LOG_LEVEL=info", OVER="ucx")
    assert done.returncode == 0, done.stderr[-3000:]
    lines = done.stdout.splitlines()
    assert sorted(line for line in lines if line.startswith("sum")) == [f"sum {r} 2 3.0 3.0" for r in range(2)]
    assert len([line for line in lines if "ep_cfg[1]: tag(rc_verbs/railbed0:1" in line]) == 2
