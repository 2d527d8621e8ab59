"""Processes of standing fabrics that end or stand still: named at once, by every command; none waits for them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from hardware.client import Fabricd
from testbed.live.status import status
from testbed.machine import ownership
from testbed.machine.ownership import Record
from tests.parts.machine import ROOT, TESTBED, cli, told, wait_until
from tests.parts.standing import ENDS_S, HELD, REAL, STANDS, ends, go_on, kill, named, standing, stop

STRAGGLER = ("inject", "straggler", "--on", "nic:0", "--factor", "2")


@pytest.fixture
def held(tmp_path: Path) -> Iterator[Record]:
    with standing(HELD, tmp_path) as record:
        yield record


@pytest.fixture
def real(tmp_path: Path) -> Iterator[Record]:
    with standing(REAL, tmp_path) as record:
        yield record


def test_under_a_held_clock_whoever_stands_still_is_named_and_goes_on_where_it_was(held: Record) -> None:
    for part in ("ovs-vswitchd", "ovsdb-server", "fabricd", "keeper"):
        pid = stop(held, part)
        named(held, f"{part} (process {pid}) is stopped")
        for words in (("advance", "5us"), STRAGGLER):
            done = ends(*words, "--fabric", held.id)
            assert done.returncode == 1, done.stdout
            assert f"{part} (process {pid}) is stopped" in done.stderr and f"kill -CONT {pid}" in done.stderr
        found = status(held)
        assert (found["state"], found["fidelity"]["verdict"]) == ("broken", "invalid")
        go_on(held, part)
    told("advance", "5us", "--fabric", held.id)
    assert status(held)["troubles"] == []
    assert "straggler" not in told("show", "faults", "--fabric", held.id)


@pytest.mark.parametrize("part", ["ovs-vswitchd", "fabricd"])
def test_one_that_stops_while_the_clock_goes_on_does_not_end_the_world(held: Record, part: str) -> None:
    """Open vSwitch would be waited for ten times as long as patience lasts. Nobody waits for the rest of what was asked
    for by a command that has given up."""
    command = [*TESTBED, "advance", "100000", "steps", "--limit", "1000s", "--fabric", held.id]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd=ROOT) as going:
        before = status(held)["time_ns"]
        wait_until(lambda: status(held)["time_ns"] > before, "time to go on")
        pid = stop(held, part)
        said = going.communicate(timeout=ENDS_S)[1]
        assert f"{part} (process {pid}) is stopped" in said
    go_on(held, part)
    two = json.loads(told("advance", "2", "steps", "--fabric", held.id, "--json"))
    assert two["met"] is True and two["steps"][-1]["number"] < 100000


@pytest.mark.parametrize("part", ["ovs-vswitchd", "ovsdb-server", "holder", "fabricd"])
def test_whoever_ends_under_a_held_clock_is_named_with_how(held: Record, part: str) -> None:
    pid = kill(held, part)
    named(held, f"{part} (process {pid})")
    assert part in ends("advance", "5us", "--fabric", held.id).stderr
    wait_until(lambda: ownership.find(held.id).state == "dead", "the keeper to give it up")
    assert f"{part} (process {pid}) was ended by SIGKILL at " in status(ownership.find(held.id))["why"]
    for words in ((*STRAGGLER, "--fabric"), ("show", "queues"), ("status", "--where")):
        done = ends(*words, held.id)
        assert done.returncode == 1 and f"{part} (process {pid})" in done.stderr, done.stderr


@pytest.mark.parametrize("part", ["ovs-vswitchd", "ovsdb-server", "holder", "host h1"])
def test_a_fabric_with_the_real_clock_ends_with_its_parts(real: Record, part: str) -> None:
    pid = kill(real, part)
    named(real, f"{part} (process {pid})")
    wait_until(lambda: ownership.find(real.id).state == "dead", "fabricd to end")
    assert "has ended, at " in status(ownership.find(real.id))["why"]
    done = ends("inject", "loss", "--on", "cable:h0-sw0", "--rate", "0.1", "--fabric", real.id)
    assert done.returncode == 1 and f"{part} (process {pid})" in done.stderr, done.stderr


def test_a_controller_is_named_and_the_fabric_goes_on(real: Record) -> None:
    pid = stop(real, "controller")
    named(real, f"controller (process {pid}) is stopped")
    assert status(real)["state"] == "alive"
    go_on(real, "controller")
    pid = kill(real, "controller")
    named(real, f"controller (process {pid}) has ended")
    assert ends("show", "queues", real.id).returncode == 0


def test_a_job_that_ends_while_its_ranks_start_holds_up_nobody(tmp_path: Path) -> None:
    """Its ranks were waited for: a fault was not in after 60 s, and the next run hung without a word."""
    (tmp_path / "job.yaml").write_text("name: job\nworkload: [{collective: all_reduce, sizes: [4KiB]}]\n")
    with standing(STANDS, tmp_path) as record:
        job = Fabricd(record.dir / "control.sock")
        job.request("start", ranks=[0, 1, 2])
        job.request("inject", fault="t", primitive="traffic", flows=[[0, 1, 4096, 1000]])  # something is under way
        job.close()  # as when it is killed
        assert ends(*STRAGGLER, "--fabric", record.id).returncode == 0
        assert ends("run", str(tmp_path / "job.yaml"), "--fabric", record.id).returncode == 0


def test_a_stopped_program_of_a_rank_is_named(real: Record) -> None:
    cli("exec", "--fabric", real.id, "1", "--", "true")
    state = json.loads((real.dir / "runc" / f"rb{real.id}-r1" / "state.json").read_text())
    init = int(state["init_process_pid"])
    os.kill(init, signal.SIGSTOP)
    named(real, f"a program of rank 1 (process {init}) is stopped")
    os.kill(init, signal.SIGCONT)
