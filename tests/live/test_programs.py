"""Ordinary programs on a fabric with the real clock: one command at all ranks, Gloo, MPI."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from testbed.experiment import loads
from testbed.fabric.lab import Lab
from tests.parts.machine import ROOT, TESTBED, wait_until
from workloads.torch import launch

FABRIC = "name: programs\nclock: real\nfabric: {topology: {star: {hosts: 2}}}\n"

SUM_BY_GLOO = """
import torch, torch.distributed as dist
dist.init_process_group("gloo")
x = torch.full((4096,), float(dist.get_rank() + 1))
dist.all_reduce(x)
print("sum", x[0].item(), x[-1].item())
dist.destroy_process_group()
"""

# By OpenMPI's library as it is: needs no headers, compiler or mpi4py.
SUM_BY_MPI = """
import ctypes
mpi = ctypes.CDLL("libmpi.so.40", mode=ctypes.RTLD_GLOBAL)
its = lambda name: ctypes.byref(ctypes.c_char.in_dll(mpi, name))
world, rank, size = its("ompi_mpi_comm_world"), ctypes.c_int(), ctypes.c_int()
mpi.MPI_Init(None, None)
mpi.MPI_Comm_rank(world, ctypes.byref(rank))
mpi.MPI_Comm_size(world, ctypes.byref(size))
ours, total = (ctypes.c_double * 4096)(*[rank.value + 1.0] * 4096), (ctypes.c_double * 4096)()
mpi.MPI_Allreduce(ours, total, 4096, its("ompi_mpi_double"), its("ompi_mpi_op_sum"), world)
print("sum", rank.value, size.value, total[0], total[4095])
mpi.MPI_Finalize()
"""


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    with Lab.up(loads(FABRIC)) as lab:
        yield lab


def everywhere(lab: Lab, *argv: str) -> subprocess.CompletedProcess[str]:
    command = [*TESTBED, "exec", "--fabric", lab.id, "--all", "--", *argv]
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=115)


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
    done = everywhere(lab, sys.executable, "-c", SUM_BY_GLOO)
    assert done.returncode == 0, done.stdout
    assert sorted(line for line in done.stdout.splitlines() if "sum" in line) == [
        f"[{r}] sum 3.0 3.0" for r in range(2)
    ]
    assert all(now - then > 4096 * 4 for now, then in zip(received(lab), before, strict=True))


def test_mpi_goes_over_the_fabric(lab: Lab) -> None:
    if shutil.which("mpirun") is None:
        pytest.skip("mpirun is not installed: apt-get install openmpi-bin")
    version = subprocess.run(["mpirun", "--version"], capture_output=True, text=True).stdout
    if "Open MPI" not in version:
        pytest.skip(f"mpirun is not Open MPI's (apt-get install openmpi-bin): {version[:60]!r}")
    before = received(lab)
    agent = " ".join([*TESTBED, "exec", "--fabric", lab.id, "--ssh"])
    of_mpi = {
        **{"plm_rsh_agent": agent, "plm_rsh_no_tree_spawn": "1", "pml": "ob1", "btl": "tcp,self"},
        **{"btl_tcp_if_include": "10.0.0.0/8", "oob_tcp_if_include": "10.0.0.0/8"},
    }
    inside = ["nsenter", f"--net=/proc/{lab.hosts['h0'].pid}/ns/net", "env", "RES_OPTIONS=timeout:1 attempts:1"]
    command = [*inside, "mpirun", "--allow-run-as-root"]
    command += [word for key, value in of_mpi.items() for word in ("--mca", key, value)]
    done = subprocess.run(
        [*command, "--host", "h0,h1", "/usr/bin/python3", "-c", SUM_BY_MPI],
        capture_output=True, text=True, cwd=ROOT, timeout=115,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    assert sorted(done.stdout.splitlines()) == [f"sum {r} 2 3.0 3.0" for r in range(2)]
    assert all(now - then > 4096 * 8 for now, then in zip(received(lab), before, strict=True))
