"""Workers that are forked into their containers: what runc gives a container's init they have, and nothing more."""

from __future__ import annotations

import ctypes
import os
import platform
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from testbed.containers import forked, joining
from testbed.containers.worker import ForkedWorker, Worker
from testbed.fabric.lab import Lab
from testbed.machine.processes import STOPPED, Process
from tests.parts.machine import ROOT, wait_until
from tests.parts.rank_container import folder as folder
from tests.parts.rank_container import inside
from tests.parts.rank_container import lab as lab

RANK = 1
STATUS = (
    *("Uid", "Gid", "Groups", "CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"),
    *("NoNewPrivs", "Seccomp", "Seccomp_filters", "Umask", "Cpus_allowed"),
)
NAMESPACES = ("cgroup", "ipc", "mnt", "net", "pid", "user", "uts")
INTERRUPT = 0x4207  # PTRACE_INTERRUPT of linux/ptrace.h
SLEEP = "import time; time.sleep(600)"
# Calls that a worker may not make, may make, and that no kernel has: what they end with. By x86_64's numbers.
CALLS = """
import ctypes, errno
libc = ctypes.CDLL(None, use_errno=True)
def end(*call):
    return "ok" if libc.syscall(*call) >= 0 else errno.errorcode[ctypes.get_errno()]
for number in (101, 103, 134, 139, 153, 155, *range(163, 180), 237, 238, *range(248, 251), 256, 272, 279, 298, 300, 303,
               304, 308, 310, 311, 312, 313, 317, 320, 321, 323, *range(425, 436), *range(442, 447), 450, 700):
    print(number, end(number, -1, -1, -1, -1, -1, -1))
for family in range(45): print("socket", family, end(41, family, 1, 0))
print("unshare", end(272, 0x10000000), "clone", end(56, 0x10000000 | 17, 0, 0, 0, 0))
"""


@contextmanager
def program(lab: Lab, code: str) -> Iterator[tuple[Worker, Path]]:
    """A forked program that runs Python's `timeit` once with this code, and what it prints."""
    out = lab.dir / "forked.out"
    argv = [sys.executable, "-m", "timeit", "-n", "1", "-r", "1", code]
    with out.open("wb") as stdout:
        worker = lab.containers.fork(RANK, argv, stdout=stdout, stderr=stdout)
    try:
        assert isinstance(worker, ForkedWorker)
        yield worker, out
    finally:
        worker.kill()
        worker.wait()


def proc(pid: int, name: str) -> str:
    return Path(f"/proc/{pid}/{name}").read_text()


def status(pid: int) -> dict[str, list[str]]:
    lines = (line.split() for line in proc(pid, "status").splitlines())
    return {name: its for word, *its in lines if (name := word.rstrip(":")) in STATUS}


def test_the_kernel_says_of_it_what_it_says_of_the_init_that_runc_has_started(lab: Lab) -> None:
    with program(lab, SLEEP) as (worker, _):
        assert worker.pid and not forked.server().refused
        init = lab.containers.running(RANK)
        assert init is not None and init.pid != worker.pid
        mine, its = (
            {
                "status": status(pid),
                "limits": proc(pid, "limits"),
                "groups": proc(pid, "cgroup"),
                "mounts": proc(pid, "mountinfo"),
                "users": proc(pid, "uid_map") + proc(pid, "gid_map"),
                "namespaces": [os.readlink(f"/proc/{pid}/ns/{name}") for name in NAMESPACES],
                "root": os.stat(f"/proc/{pid}/root").st_ino,
                "filters": joining.filters_of(pid),
            }
            for pid in (worker.pid, init.pid)
        )
    assert mine == its
    assert len(its["status"]) == len(STATUS) and its["status"]["Seccomp"] == ["2"] and its["filters"]
    assert int(its["status"]["CapBnd"][0], 16) == 0x20C1  # CAP_NET_RAW, CAP_SETUID, CAP_SETGID, CAP_CHOWN


def test_an_init_that_forgets_to_stop_is_told_again(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the kernel has it if the process with several threads that runc has made of itself executes the init then."""

    class Forgetful:
        def __init__(self, libc: ctypes.CDLL) -> None:
            self.libc, self.told = libc, 0

        def ptrace(self, request: int, *arguments: object) -> int:
            self.told += request == INTERRUPT
            return 0 if request == INTERRUPT and self.told < 3 else self.libc.ptrace(request, *arguments)

    with program(lab, SLEEP) as (worker, _):
        assert worker.pid
        filters = joining.filters_of(worker.pid)
        monkeypatch.setattr(joining, "_libc", kernel := Forgetful(joining._libc))
        assert joining.filters_of(worker.pid) == filters
        assert kernel.told >= 3


@pytest.mark.skipif(platform.machine() != "x86_64", reason="other machines number calls differently")
def test_every_system_call_ends_as_in_a_program_that_runc_starts(lab: Lab) -> None:
    with program(lab, CALLS) as (worker, out):
        assert worker.wait() == 0
        by_runc = inside(lab, sys.executable, "-c", CALLS, rank=RANK)
    mine = out.read_text().partition("1 loop")[0]
    assert mine == by_runc
    assert mine.count("EPERM") > 40 and "700 EPERM" in mine and "socket 2 ok" in mine, mine


def test_it_has_nothing_of_who_has_forked_it(lab: Lab) -> None:
    look = (
        "import os, sys; print(sorted(os.listdir('/proc/self/fd')), os.getcwd(), os.getpid() == os.getsid(0), "
        "open('/proc/self/environ').read().split(chr(0))[:-1] == [f'{k}={v}' for k, v in os.environ.items()], "
        "os.environ['RAILBED_RANK'], open('/proc/self/cmdline').read().split(chr(0))[1:3], "
        "[name for name in sys.modules if name.startswith('testbed.') and 'containers' not in name])"
    )
    with program(lab, look) as (worker, out):
        assert worker.wait() == 0
    said = out.read_text()
    assert said.startswith("['0', '1', '2', '3'] / True True 1 ['-m', 'timeit'] []\n"), said  # 3: the folder itself


@pytest.mark.parametrize(
    ("code", "end"),
    [
        ("pass", 0),
        ("import os; os._exit(7)", 7),
        ("import os; os.kill(os.getpid(), 9)", -9),
        ("import os; os.kill(os.getpid(), 11)", -11),
        ("1 / 0", 1),
    ],
)
def test_it_tells_how_it_ended_and_its_container_ends_with_it(lab: Lab, code: str, end: int) -> None:
    with program(lab, code) as (worker, _):
        assert worker.wait() == worker.poll() == end
        assert lab.containers.running(RANK) is None


def test_it_ends_with_its_container(lab: Lab) -> None:
    with program(lab, SLEEP) as (worker, _):
        assert worker.pid
        init = lab.containers.running(RANK)
        assert init is not None
        init.signal(signal.SIGKILL)
        assert worker.wait() == -signal.SIGKILL
    with program(lab, SLEEP) as (worker, _):
        worker.kill(signal.SIGTERM)
        assert worker.wait() == -signal.SIGTERM


def test_a_fault_freezes_and_kills_it(lab: Lab) -> None:
    with program(lab, SLEEP) as (worker, _):
        process = Process.of(worker.pid)
        lab.containers.freeze(RANK)
        assert process.state() in STOPPED
        lab.containers.thaw(RANK)
        wait_until(lambda: process.state() == "S", "it sleeps again")
        lab.containers.kill(RANK)
        assert worker.wait() == -signal.SIGKILL
        lab.containers.revive(RANK)


def test_a_server_that_is_killed_is_started_again(lab: Lab) -> None:
    with program(lab, SLEEP) as (worker, _):
        assert worker.pid
        first = forked.server()._process
        assert first is not None
        os.kill(first.pid, signal.SIGKILL)
        assert worker.wait() == -signal.SIGKILL, "nobody knows any more"
        assert lab.containers.running(RANK) is None
    with program(lab, "import os; os._exit(5)") as (worker, _):
        assert worker.wait() == 5
    assert forked.server()._process is not first


def test_it_and_its_container_end_with_who_has_started_it(lab: Lab) -> None:
    """Whoever is killed: what nobody reaps would keep the container."""
    source = (
        "import sys, time; from testbed.fabric.lab import Lab; lab = Lab.attach(sys.argv[1])\n"
        "worker = lab.containers.fork(1, [sys.executable, '-m', 'timeit', sys.argv[2]], stdout=None, stderr=None)\n"
        "print(worker.pid, flush=True); time.sleep(600)"
    )
    command = [sys.executable, "-c", source, lab.id, SLEEP]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as starter:
        assert starter.stdout is not None
        process = Process.of(int(starter.stdout.readline()))
        assert process.alive() and lab.containers.running(RANK) is not None
        starter.kill()
    wait_until(lambda: process.ended() and lab.containers.running(RANK) is None, "both have ended")


def test_where_it_cannot_be_forked_runc_starts_it(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    server = forked.ForkServer()
    monkeypatch.setattr(forked, "server", lambda: server)
    fork = server.fork
    monkeypatch.setattr(server, "fork", lambda init, groups, *more, **how: fork(init, ["/no/such/group"], *more, **how))
    with program(lab, "print('here', flush=True); import os; os._exit(3)") as (worker, out):
        assert worker.wait() == 3
        assert out.read_text() == "here\n" and lab.containers.running(RANK) is None
    assert server.refused
    argv = [sys.executable, "-m", "timeit", "-n", "1", "-r", "1", "import os; os._exit(4)"]
    again = lab.containers.fork(RANK, argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    assert not isinstance(again, ForkedWorker) and again.wait() == 4
