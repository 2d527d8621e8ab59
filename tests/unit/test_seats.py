"""What is made of processes that are not there, or not yet: a controller in its seat, a holder, a rank's container."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from drills.solve import traces
from results.store.folder import RunFolder
from testbed.base.errors import MachineError, UserError
from testbed.base.progress import Progress
from testbed.containers.container import Containers
from testbed.experiment import loads
from testbed.fabric.bringup import Bringup, controller_settings
from testbed.fabric.fork_server import ControllerSeat
from testbed.inject.agent import Agent
from testbed.machine.ownership import Journal, Record
from testbed.machine.processes import Process, wait_for
from testbed.machines import sweep as of_sweep
from testbed.machines.sweep import OnMachines
from tests.parts.small_sweep import SWEEP

CONTROL = controller_settings(loads(SWEEP))


@pytest.fixture
def sleeper() -> Iterator[Process]:
    child = subprocess.Popen(["sleep", "600"])
    # it has begun before the kernel shows its arguments
    assert wait_for(lambda: b"600" in Path("/proc", str(child.pid), "cmdline").read_bytes(), 60)
    yield Process.of(child.pid)
    child.kill()
    child.wait()


@pytest.fixture
def gone() -> Process:
    child = subprocess.Popen([sys.executable, "-c", ""])
    process = Process.of(child.pid)
    child.wait()
    return process


def coming_up(folder: Path, holder: Process, seat: ControllerSeat) -> Bringup:
    journal = Journal(folder / "journal")
    journal.own(Process.of(os.getpid()), SimpleNamespace(name=""))  # type: ignore[arg-type]
    journal.made({"holder": holder})
    names = SimpleNamespace(dpid_base=0)
    return Bringup(Record(folder.name, folder, "mark"), journal, None, names, False, False, seat)  # type: ignore[arg-type]


def test_a_controller_goes_on_only_when_it_is_written_down(tmp_path: Path, sleeper: Process) -> None:
    ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    work = coming_up(tmp_path, sleeper, ControllerSeat(ours))
    work.order_controller(CONTROL)
    order, descriptors, _, _ = socket.recv_fds(its, 1 << 16, 4)
    assert json.loads(order)["environment"] == {"RAILBED_FABRIC": "mark"} and len(descriptors) == 4
    work.look_at_seat(CONTROL)
    assert work.controller is None, "it has not answered"
    its.sendall(f"{sleeper.pid}\n".encode())
    seen: list[Process | None] = []
    work.seat.go = lambda: seen.append(Record.read(tmp_path).processes.get("controller"))  # type: ignore
    work.look_at_seat(CONTROL)
    assert seen == [sleeper] and work.seated_controller(CONTROL).process.pid == sleeper.pid
    for descriptor in descriptors:
        os.close(descriptor)
    work.release_process_lock()


def test_a_dead_holder_is_a_machine_error(tmp_path: Path, gone: Process) -> None:
    ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    work = coming_up(tmp_path, gone, ControllerSeat(ours))
    with its, pytest.raises(MachineError, match="no process left") as raised:
        work.order_controller(CONTROL)
    assert raised.value.hint == "testbed status --all"


def test_a_container_whose_init_has_just_gone_does_not_stand_still(
    tmp_path: Path, gone: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    containers = Containers("abcd", tmp_path, "mark", "group", {}, {}, None)  # type: ignore[arg-type]
    started: list[int] = []
    monkeypatch.setattr(Containers, "running", lambda self, rank: gone)
    monkeypatch.setattr(Containers, "_start_idle", lambda self, rank: started.append(rank))
    containers.idle(3)
    assert started == [3]


def test_a_container_that_is_stopped_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    containers = Containers("abcd", tmp_path, "mark", "group", {}, {}, None)  # type: ignore[arg-type]
    for state in "Tt":
        init = SimpleNamespace(state=lambda state=state: state)
        monkeypatch.setattr(Containers, "running", lambda self, rank, init=init: init)
        with pytest.raises(UserError, match="stands still"):
            containers.idle(3)


def test_a_controller_that_has_gone_need_not_stand_still(gone: Process) -> None:
    """It has ended after it was seen: the fault finds nothing to stop."""
    faults = {"faults": [{"on": True, "request": {"spec": {"controller": "hung"}}}]}
    lab = SimpleNamespace(
        controller=SimpleNamespace(pid=gone.pid, poll=lambda: None), fabricd=SimpleNamespace(request=lambda *_: faults)
    )
    Agent(lab, lambda rank: None)._make_controller_as_faults_say()  # type: ignore[arg-type]


def test_who_looks_for_traces_finds_a_process_without_the_mark(tmp_path: Path, sleeper: Process) -> None:
    record = Record("abcd", tmp_path, "no such mark", processes={"controller": sleeper})
    assert "\0".join(["sleep", "600", ""]) in list(traces._files_and_processes(record))


def test_who_looks_for_traces_reads_the_names_and_the_content_of_a_fabrics_files(tmp_path: Path) -> None:
    (tmp_path / "a_loop").mkdir()
    (tmp_path / "a_loop" / "note").write_bytes(b"put in a loss\xff")
    (tmp_path / "link").symlink_to(tmp_path / "a_loop" / "note")
    found = list(traces._files_and_processes(Record("abcd", tmp_path, "no such mark")))
    assert found == ["a_loop", "note", "put in a loss\ufffd", "link"]


def test_what_points_run_in_is_closed_whatever_comes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    closed: list[bool] = []

    def no_room() -> int:
        raise MachineError("no memory can be told")

    monkeypatch.setattr(of_sweep, "Processes", lambda folder: SimpleNamespace(close=lambda: closed.append(True)))
    monkeypatch.setattr(of_sweep, "room", no_room)
    folder = RunFolder.create("x", tmp_path / "sweep")
    with pytest.raises(MachineError, match="no memory"), OnMachines(here=2) as runner:
        list(_rows(runner, folder))
    assert closed == [True]


def _rows(runner: OnMachines, folder: RunFolder) -> Iterator[tuple[int, dict[str, Any]]]:
    return runner(loads(SWEEP + "sweep: {seed: [1, 2]}\n"), folder, Progress())
