"""Controllers that are forked from one process: the same figures as of those that are started, nothing left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from testbed.experiment import loads
from testbed.fabric.bringup import Bringup
from testbed.fabric.controller import Controller
from testbed.fabric.fork_server import ControllerServer
from testbed.fabric.lab import Lab
from testbed.machine.ownership import RUN_DIR, Record
from testbed.machine.processes import Process, Running, wait_for
from testbed.run.run import run
from testbed.run.sweep import run_sweep
from tests.parts.machine import ROOT, fabrics_begun_by, traces
from tests.parts.small_sweep import SWEEP, Noted

LIMIT_S = 60.0
STAR = "name: star\nfabric: {topology: {star: {hosts: 2}}}\nclock: virtual\n"


@pytest.fixture(scope="module")
def server() -> Iterator[ControllerServer]:
    with ControllerServer() as server:
        yield server


@pytest.fixture
def orders(tmp_path: Path) -> Iterator[tuple[dict[str, Any], Path]]:
    """What `begin` takes, of a controller that would end at once with a message; and where that goes."""
    out = tmp_path / "out"
    argv = ["--fabric", str(tmp_path / "no fabric"), "--port", "1", "--dpid-base", "0", "--ovs", "none"]
    with open("/proc/self/ns/net") as namespace, out.open("wb") as output, open(os.devnull) as lock:
        descriptors = [namespace.fileno(), output.fileno(), output.fileno(), lock.fileno()]
        yield {"argv": argv, "environment": {}, "name": "rbtest-control", "descriptors": descriptors}, out


def parent(pid: int) -> str:
    """The command line of its parent."""
    status = Path(f"/proc/{pid}/status").read_text()
    above = next(line.split()[1] for line in status.splitlines() if line.startswith("PPid:"))
    return Path(f"/proc/{above}/cmdline").read_text().replace("\0", " ")


# -- a seat


def test_it_begins_when_it_is_written_down(server: ControllerServer, orders: tuple[dict[str, Any], Path]) -> None:
    order, out = orders
    with closing(server.seat("os-ken")) as seat:
        seat.order(**order)
        controller = seat.taken()
        assert isinstance(controller, Running) and controller.poll() is None and out.read_text() == ""
        assert Path(f"/proc/{controller.pid}/comm").read_text() == "rbtest-control\n"
        seat.go()
        assert wait_for(lambda: controller.poll() is not None, LIMIT_S)
    assert "no fabric" in out.read_text()


def test_it_ends_with_its_testbed_before_it_begins(
    server: ControllerServer, orders: tuple[dict[str, Any], Path]
) -> None:
    order, out = orders
    seat = server.seat("os-ken")
    seat.order(**order)
    controller = seat.taken()
    assert controller is not None
    seat.close()
    assert wait_for(lambda: controller.poll() is not None, LIMIT_S) and out.read_text() == ""


def test_a_seat_is_empty_when_the_server_is_gone(orders: tuple[dict[str, Any], Path]) -> None:
    order, _ = orders
    with ControllerServer() as server:
        with closing(server.seat("os-ken")) as seat:
            seat.order(**order)
            assert seat.taken()  # it has imported all
        assert server._process is not None
        server._process.kill()
        server._process.wait()
        with closing(server.seat("os-ken")) as seat:
            seat.order(**order)
            assert seat.taken() is None


def test_only_who_needs_the_server_starts_it(orders: tuple[dict[str, Any], Path]) -> None:
    order, _ = orders
    with ControllerServer() as server:
        with closing(server.seat("ryu")) as seat:
            assert seat.answered, "it is empty"
            seat.order(**order)
            assert seat.taken() is None
        assert server._process is None
        server.seat("os-ken").close()
        assert server._process is not None
        process = server._process
    assert process.returncode is not None
    assert server.seat("os-ken").taken() is None and server._process is process


def test_the_server_outlives_the_thread_that_needed_it_first(orders: tuple[dict[str, Any], Path]) -> None:
    order, _ = orders
    with ControllerServer() as server:

        def ordered() -> Running | None:
            with closing(server.seat("os-ken")) as seat:
                seat.order(**order)
                return seat.taken()

        with ThreadPoolExecutor(1) as first:
            assert first.submit(ordered).result() is not None
        assert ordered() is not None


# -- a fabric


def test_a_forked_controller_does_what_a_started_one_does(server: ControllerServer) -> None:
    flows = []
    for seat in (None, server.seat("os-ken"), server.seat("os-ken")):
        with Lab.up(loads(STAR), seat=seat) as lab:
            flows.append([{k: v for k, v in flow.items() if k != "cookie"} for flow in lab.flows()])
            forked = "controllers.fork_server" in parent(lab.controller.pid)
            assert forked == (seat is not None)
            within = [Path(f"/proc/{pid}/ns/net").readlink() for pid in (lab.controller.pid, lab.hardware.pid)]
            assert within[0] == within[1]
            controller = Process.of(lab.controller.pid)
        assert not controller.alive() and traces(lab.id) == []
        if seat:
            seat.close()
    assert flows[0] == flows[1] == flows[2] and len(flows[0]) > 0


def test_without_its_server_a_controller_is_started() -> None:
    server = ControllerServer()
    server.close()
    with closing(server.seat("os-ken")) as seat, Lab.up(loads(STAR), seat=seat) as lab:
        assert "controllers.fork_server" not in parent(lab.controller.pid)
        assert lab.controller.poll() is None


def test_the_rest_of_a_fabric_comes_up_while_the_server_imports(monkeypatch: pytest.MonkeyPatch) -> None:
    make_bridges = Bringup.make_bridges
    with ControllerServer() as server, closing(server.seat("os-ken")) as seat:
        process = server._process
        assert process is not None
        process.send_signal(signal.SIGSTOP)

        def go_on(self: Bringup) -> list[subprocess.Popen[str]]:
            assert self.controller is None and "controller" not in Record.read(self.dir).processes
            process.send_signal(signal.SIGCONT)
            return make_bridges(self)

        monkeypatch.setattr(Bringup, "make_bridges", go_on)
        with Lab.up(loads(STAR), seat=seat) as lab:
            assert "controllers.fork_server" in parent(lab.controller.pid)
            assert Record.read(lab.dir).processes["controller"].pid == lab.controller.pid


def test_it_goes_on_without_the_server() -> None:
    with ControllerServer() as server:
        seat = server.seat("os-ken")
        lab = Lab.up(loads(STAR), seat=seat)
    with lab, closing(seat):
        assert lab.controller.poll() is None


UP = f"""
import time
from testbed.experiment import loads
from testbed.fabric.fork_server import ControllerServer
from testbed.fabric.lab import Lab
with ControllerServer() as server:
    seat = server.seat("os-ken")
    lab = Lab.up(loads({STAR!r}), seat=seat)
    print(lab.id, lab.controller.pid, server._process.pid, flush=True)
    time.sleep(600)
"""


def test_it_ends_with_a_testbed_that_is_killed_even_if_it_is_stopped() -> None:
    """The kernel ends it, and not the fabric's holder, which would sweep it out, but stands still, too."""
    testbed = subprocess.Popen([sys.executable, "-c", UP], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert testbed.stdout is not None
    fabric, *pids = testbed.stdout.readline().split()
    ours = [Running.of(int(pid)) for pid in pids]
    controller = Process.of(int(pids[0]))
    holder = Record.read(RUN_DIR / fabric).processes["holder"]
    for process in (controller, holder):
        assert process.signal(signal.SIGSTOP) and wait_for(process.stopped, LIMIT_S)
    testbed.kill()
    testbed.communicate()
    assert wait_for(lambda: all(process.poll() is not None for process in ours), LIMIT_S)
    assert holder.stopped()
    done = subprocess.run([sys.executable, "-m", "testbed", "clean", fabric], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0 and traces(fabric) == [], done.stderr


# -- a sweep


def test_each_point_is_as_a_run_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    forked = noted(monkeypatch)
    sweep = "sweep: {seed: [1, 2], transport.cc: [none, dcqcn]}\n"
    _, rows = run_sweep(loads(SWEEP + sweep), tmp_path / "sweep", Noted())
    assert forked == [True] * 4
    for n, row in enumerate(rows):
        alone = SWEEP + f"seed: {row['seed']}\ntransport: {{cc: {row['transport.cc']}}}\n"
        assert run(loads(alone), tmp_path / f"alone{n}").metrics_sha256 == row["metrics_sha256"]
    assert fabrics_begun_by(os.getpid()) == []


def test_a_point_after_a_killed_controller_and_a_failed_run_is_as_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    forked = noted(monkeypatch)
    dead = "{fault: controller_dead, on: controller, at: 1us, for: 1us}"
    killed = '{fault: worker_killed, on: "nic:1", at: 1us}'
    _, rows = run_sweep(
        loads(SWEEP + f"sweep: {{inject: [[], [{dead}], [{killed}], []]}}\n"), tmp_path / "sweep", Noted()
    )
    assert "error" in rows[2] and "error" not in rows[1]
    first, last = ({k: v for k, v in rows[n].items() if k not in ("inject", "run")} for n in (0, 3))
    assert first == last and "metrics_sha256" in first
    assert forked == [True, True, False, True, True], "a killed controller is started, the next one is forked again"
    assert fabrics_begun_by(os.getpid()) == []


def noted(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether each controller that is started from now on is a forked one."""
    forked: list[bool] = []
    has = Bringup._has_controller

    def note(self: Bringup, process: Any) -> Controller:
        forked.append(isinstance(process, Running))
        return has(self, process)

    monkeypatch.setattr(Bringup, "_has_controller", note)
    return forked
