"""`testbed up --job` and `advance`: the keeper of a fabric that stands still, its commands and its end."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from testbed.base.errors import UserError
from testbed.fabric.lab import Lab
from testbed.live.look.look import Look
from testbed.live.views import VIEWS
from testbed.machine import ownership
from testbed.world.keeper import SOCKET
from testbed.world.kept import Kept
from testbed.world.source import OfWorld
from tests.parts.machine import here, told, traces, wait_until

HELD = """
name: held
fabric: {topology: {star: {hosts: 3}}, nic: {timeout: 20us}}
workload: [{collective: all_reduce, algorithm: ring, sizes: [16KiB]}]
inject: [{fault: duplication, on: "cable:h2-sw0", rate: 0.01, at: 1s}]
workers: {ranks_per_process: 3}
"""


def up(folder: Path) -> str:
    (folder / "held.yaml").write_text(HELD)
    return str(json.loads(told("up", str(folder / "held.yaml"), "--virtual", "--job", "--json"))["id"])


@pytest.fixture(scope="module")
def held(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    fabric_id = up(tmp_path_factory.mktemp("up"))
    yield fabric_id
    if (ownership.RUN_DIR / fabric_id).exists():
        told("down", fabric_id)
    assert traces(fabric_id) == []


def advance(held: str, *words: str, code: int = 0) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(told("advance", *words, "--fabric", held, "--json", code=code))
    return found


def test_it_goes_on_by_exactly_as_much_as_it_is_told(held: str) -> None:
    began = advance(held, "1us")["time_ns"]
    assert advance(held, "12345ns")["time_ns"] == began + 12_345
    assert json.loads(told("show", "interfaces", "status", held, "--json"))  # to look takes no time
    assert advance(held, "1ns")["time_ns"] == began + 12_346
    with Kept.attach(held) as world:
        assert world.counters()["time_ns"] == world.time_ns == began + 12_346


def test_flows_are_one_table_without_what_depends_on_the_machine(held: str) -> None:
    advance(held, "4", "steps")
    shown = json.loads(told("show", "flows", held, "--json"))
    lab = Lab.attach(held)
    try:
        all_of_them = lab.flows()
    finally:
        lab.close()
    assert sum(row.pop("fast_packets") for row in all_of_them) > 0 and sum(row["packets"] for row in shown) > 0
    assert shown == all_of_them
    with Kept.attach(held) as world:
        (table,) = VIEWS["flows"].show(Look(OfWorld(world), world.counters()))
    assert table.rows == shown and {k for row in shown for k in table.counts(row)} == {"packets", "bytes"}


def test_steps_of_the_job_and_how_they_are_shown(held: str) -> None:
    gone = advance(held, "4", "steps")
    assert len(gone["steps"]) == 4
    (row,) = json.loads(told("show", "job", held, "--json"))
    assert row["step"] == f"0..{gone['steps'][-1]['number']}"
    assert (row["vs_best"], row["slowest_rank"], row["wrong"]) == ("1.00x", "-", 0)
    ranks = json.loads(told("show", "job", held, "--ranks", "--last", "1", "--json"))
    assert [r["rank"] for r in ranks] == [0, 1, 2]
    now = json.loads(told("show", "job", held, "--now", "--json"))
    assert [r["rank"] for r in now] == [0, 1, 2]
    assert {r["state"] for r in now} <= {"at work", "waits"}


def test_a_fault_is_put_in_and_healed_at_the_hold(held: str) -> None:
    at = advance(held, "1us")["time_ns"]
    name = told("inject", "loss", "--on", "cable:h0-sw0", "--rate", "0.2", "--fabric", held).strip()
    rows = {row["id"]: row for row in json.loads(told("show", "faults", held, "--json"))}
    assert (rows[name]["state"], rows[name]["since_ns"]) == ("on", at)
    assert rows["f1"]["state"] == "off"  # of the file: it comes at 1 s
    slow = advance(held, "until", "step > 1.2x")
    assert slow["met"]
    assert told("heal", name, "--fabric", held) == f"healed: {name}\n"
    rows = json.loads(told("show", "job", held, "--json"))
    assert float(rows[-1]["vs_best"].removesuffix("x")) > 1.2
    changed = json.loads(told("show", "interfaces", "counters", held, "--changed", "50us", "--json"))
    assert changed


def test_what_is_not_so_within_the_limit_has_exit_code_1(held: str) -> None:
    at = advance(held, "1us")["time_ns"]
    given_up = advance(held, "until", "step > 1s", "--limit", "100us", code=1)
    assert (given_up["met"], given_up["time_ns"]) == (False, at + 100_000)


def test_several_at_once_are_answered_one_after_the_other(held: str) -> None:
    at = advance(held, "1us")["time_ns"]
    errors: list[BaseException] = []

    def go() -> None:
        try:
            with Kept.attach(held) as world:
                for _ in range(5):
                    world.advance(1000)
                    world.digest()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=go) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert advance(held, "1ns")["time_ns"] == at + 20_001


HOSTILE = (
    b'{"call": "advance", "ns": 1e999}\n',
    b'{"call": "history_at", "index": 1000000}\n',
    b'{"call": ["state"]}\n',
    b"[" * 100_000 + b"\n",
)


def test_nonsense_on_its_socket_is_answered_and_changes_nothing(held: str) -> None:
    with Kept.attach(held) as world:
        before = world.digest()
        for asked in ({"call": "fly"}, {"call": "advance"}, {"call": "until", "condition": "x", "limit_ns": 1}):
            with pytest.raises(UserError):
                world._call(**asked)
        for line in (b"\n", b"[]\n", b"{\n", b"\xff\n", b"1\n", *HOSTILE):
            world._lines.sock.sendall(line)
            assert world._answer()["ok"] is False
        with pytest.raises(UserError, match="there is no fault"):
            world.take_out("f9")
        with pytest.raises(UserError, match="unknown"):
            world.request("fly")
        assert world.digest() == before


WRONG = [
    (("advance", "soon"), "does not say how far"),
    (("advance", "10"), "has no unit"),
    (("advance", "0us"), "cannot be gone on by"),
    (("advance", "0.5ns"), "cannot be gone on by"),
    (("advance", "some", "steps"), "no number of steps"),
    (("advance", "until", "step"), "is no condition"),
    (("advance", "until", "luck > 2"), "'luck' is nothing that can be waited for"),
    (("advance", "until", "step > 2"), "has no unit"),
    (("advance", "until", "drops > many"), "is not a number"),
    (("advance", "1us", "--limit", "x"), "is not a time"),
]


@pytest.mark.parametrize(("words", "what"), WRONG)
def test_what_cannot_be_asked_is_said_before_anything_happens(words: tuple[str, ...], what: str) -> None:
    done = here(*words)
    assert done.returncode == 2
    assert what in done.stderr
    assert "hint: " in done.stderr


def test_a_job_needs_the_virtual_clock_and_a_workload(tmp_path: Path) -> None:
    file = tmp_path / "e.yaml"
    file.write_text(HELD)
    own = ("--set", "workers.ranks_per_process=auto", "--set", "inject=[]")
    assert "add --virtual" in here("up", str(file), "--job").stderr
    assert "cannot be both" in here("up", str(file), "--virtual", "--job", "--set", "clock=real", *own).stderr
    assert "no workload to repeat" in here("up", str(file), "--virtual", "--job", "--set", "workload=[]").stderr


def test_a_run_on_it_is_refused(held: str, tmp_path: Path) -> None:
    file = tmp_path / "e.yaml"
    file.write_text(HELD)
    done = here("run", str(file), "--fabric", held)
    assert done.returncode == 2
    assert f"fabric {held} repeats a job of its own" in done.stderr


def test_a_fault_that_would_make_it_better_is_refused_by_its_keeper(held: str) -> None:
    done = here("inject", "reduced_rate", "--on", "all", "--rate", "9Tbps", "--fabric", held)
    assert done.returncode == 2
    assert "at: command line: --rate 9Tbps" in done.stderr and "hint: less than " in done.stderr
    assert "reduced_rate" not in told("show", "faults", "--fabric", held)


def test_what_an_operator_has_set_is_no_fault(held: str) -> None:
    told("config", "interface", "mtu", "sw0:1", "4096", "--fabric", held)
    try:
        done = here("heal", "config1", "--fabric", held)
        assert (done.returncode, "there are f1" in done.stderr, "config1'" in done.stderr) == (2, True, True)
        assert "config" not in done.stderr.partition("there are:")[2]
    finally:
        told("config", "rollback", "--fabric", held)


def test_status_says_that_it_is_held(held: str) -> None:
    shown = told("status", held)
    assert "it is held: testbed advance" in shown
    assert f"testbed show job {held}" in shown


@pytest.mark.parametrize("whom", ["keeper", "fabricd"])
def test_one_that_is_killed_leaves_nothing_that_clean_does_not_find(whom: str, tmp_path: Path) -> None:
    fabric_id = up(tmp_path)
    try:
        record = ownership.find(fabric_id)
        os.kill(record.processes[whom].pid, signal.SIGKILL)
        if whom == "keeper":
            wait_until(lambda: ownership.find(fabric_id).state == "dead", "the fabric to be dead")
        done = here("advance", "1us", "--fabric", fabric_id)
        assert done.returncode == 1
        assert "ended" in done.stderr or "fabricd" in done.stderr
        wait_until(lambda: ownership.find(fabric_id).state == "dead", "the keeper to end")
        assert f"{whom} (process {record.processes[whom].pid})" in told("status", fabric_id)
        told("clean", fabric_id)
    finally:
        if (ownership.RUN_DIR / fabric_id).exists():
            here("clean", fabric_id, "--force")
    assert traces(fabric_id) == []


def test_down_takes_the_keeper_along(held: str) -> None:
    keeper = ownership.find(held).keeper
    assert keeper is not None
    assert (ownership.RUN_DIR / held / SOCKET).exists()
    told("down", held)
    wait_until(lambda: not keeper.alive(), "the keeper to end")
    assert traces(held) == []
