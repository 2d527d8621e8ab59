"""Fabrics come up, live side by side, go down; and whatever is killed at whatever moment, `clean` leaves nothing."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from click.testing import CliRunner

from hardware.client import BINARY
from testbed.base.errors import UserError
from testbed.commands import down
from testbed.experiment import loads
from testbed.fabric import bringup
from testbed.fabric.lab import Lab
from testbed.machine import ownership
from testbed.machine.lockfile import LockFile
from testbed.machine.ownership import Journal, Record
from testbed.machine.processes import Process
from tests import prove_kills
from tests.parts.machine import (
    RAIL_REAL,
    ROOT,
    STAR,
    TESTBED,
    cli,
    fabric_ids,
    fabrics_begun_by,
    here,
    marked,
    strangers,
    told,
    traces,
    wait_until,
)

PARTS = ("fabricd", "controller", "holder", "ovsdb-server", "ovs-vswitchd")


@pytest.fixture
def star(tmp_path: Path) -> str:
    (tmp_path / "star.yaml").write_text(STAR)
    return str(tmp_path / "star.yaml")


@pytest.fixture
def standing(star: str) -> Iterator[str]:
    """The id of a fabric that was left up."""
    fabric_id = json.loads(cli("up", star, "--virtual", "--json"))["id"]
    try:
        yield fabric_id
    finally:
        if fabric_id in fabric_ids():
            told("clean", fabric_id, "--force")
    assert traces(fabric_id) == []


# -- Lab


def test_a_lab_is_up_inside_its_with_block() -> None:
    with Lab.up(loads(STAR, "star.yaml")) as lab:
        assert fabrics_begun_by(os.getpid()) == [lab.id]
        assert lab.dir == Path("/run/railbed", lab.id)
        assert lab.dir.stat().st_mode & 0o777 == 0o700
        assert lab.fabricd.request("status")["clock"] == "virtual"
        assert lab.controller.poll() is None
        assert lab.state["flows"] > 0
        assert sorted(lab.hosts) == ["h0", "h1", "h2"]
    assert traces(lab.id) == []
    lab.down()  # once more does no harm


def test_its_processes_are_not_our_terminals(standing: str) -> None:
    """Ctrl-C at the terminal must reach the testbed only."""
    with Lab.up(loads(STAR, "star.yaml")) as lab:
        for pid in marked(lab.id):
            assert os.getsid(pid) != os.getsid(0)


def test_all_processes_carry_the_mark_and_are_journaled() -> None:
    with Lab.up(loads(STAR, "star.yaml")) as lab:
        journaled = {p.pid for p in lab.record.processes.values()}
        assert set(lab.record.processes) == {*PARTS, "host h0", "host h1", "host h2"}
        assert set(marked(lab.id)) == journaled
        assert all(p.alive() for p in lab.record.processes.values())


def test_two_fabrics_of_the_same_topology_at_once() -> None:
    experiment = loads(STAR, "star.yaml")
    with Lab.up(experiment) as one:
        with Lab.up(experiment) as two:
            assert one.id != two.id
            assert traces(one.id)
            two.fabricd.request("cable", cable="h0-sw0", up=False)
        assert traces(two.id) == []
        assert one.fabricd.request("status")["ok"]
        assert one.controller.poll() is None
        assert all(p.alive() for p in one.hosts.values())


def test_attach_finds_a_live_fabric() -> None:
    with Lab.up(loads(STAR, "star.yaml")) as lab:
        other = Lab.attach(lab.id)
        try:
            assert other.fabric == lab.fabric
            assert other.hosts == lab.hosts
            assert other.fabricd.request("status")["ok"]
            assert other.controller.poll() is None
            lab.controller.kill()
            wait_until(lambda: other.controller.poll() is not None, "its end is seen")
        finally:
            other.close()
        assert lab.fabricd.request("status")["ok"], "the fabric goes on"


@pytest.mark.parametrize("fault", ["fabricd", "controller", "bridges", "holder", "interrupt"])
def test_a_bring_up_that_fails_leaves_nothing(fault: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    experiment = loads(STAR, "star.yaml")
    wanted: type[BaseException] = UserError
    words = None
    if fault == "fabricd":
        broken = tmp_path / "fabricd"
        broken.write_text('#!/bin/sh\necho \'{"ready": false, "error": "no TAP today"}\'\nexit 1\n')
        broken.chmod(0o755)
        monkeypatch.setitem(bringup.Fabricd.start.__func__.__kwdefaults__, "binary", broken)  # type: ignore[attr-defined]
        words = "no TAP today"
    elif fault == "controller":
        experiment.control.routing.__dict__["name"] = "nonsense"
        words = "controller ended"
    elif fault == "bridges":
        monkeypatch.setattr(bringup.Names, "bridge", lambda self, switch: "a-name-longer-than-a-device-can-have/")
        words = "Open vSwitch"
    elif fault == "holder":
        monkeypatch.setattr(bringup, "HOLDER", Path("/bin/false"))
        words = "died"
    else:
        wanted = KeyboardInterrupt

        def interrupt(*_: object) -> None:
            raise KeyboardInterrupt

        monkeypatch.setattr(bringup.Controller, "wait_programmed", interrupt)
    made: list[str] = []
    monkeypatch.setattr("testbed.machine.ownership.secrets.token_hex", _remember(made))
    with pytest.raises(wanted, match=words):
        Lab.up(experiment)
    assert [traces(i) for i in made if len(i) == 4] == [[]]


@pytest.mark.parametrize("part", ["ovs-vswitchd", "fabricd"])
def test_a_part_that_ends_while_the_fabric_comes_up_is_noticed(part: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Others would wait for it: ovs-vsctl for two minutes, the controller for as long as patience lasts."""
    make_bridges, made = bringup.Bringup.make_bridges, Journal.made
    processes: dict[str, Process] = {}

    def note(self: Journal, started: Mapping[str, Process]) -> None:
        processes.update(started)
        made(self, started)

    monkeypatch.setattr(Journal, "made", note)

    def after_its_end(self: bringup.Bringup) -> object:
        processes[part].signal(signal.SIGKILL)
        wait_until(lambda: not processes[part].alive(), "its end")
        return make_bridges(self)

    monkeypatch.setattr(bringup.Bringup, "make_bridges", after_its_end)
    with pytest.raises(UserError, match=f"{part} ended while the fabric came up"):
        Lab.up(loads(STAR, "star.yaml"))


def _remember(made: list[str]) -> object:
    def token(size: int) -> str:
        made.append(os.urandom(size).hex())
        return made[-1]

    return token


# -- the command line


def test_up_list_down(standing: str) -> None:
    (row,) = [f for f in json.loads(told("status", "--all", "--json"))["fabrics"] if f["id"] == standing]
    assert (row["state"], row["standing"], row["name"], row["topology"]) == (
        "alive",
        True,
        "star",
        "star hosts=3",
    )
    assert (row["ranks"], row["switches"], row["controller_alive"]) == (3, 1, True)
    assert row["owner_name"] == "fabricd"
    text = told("status", "--all")
    assert standing in text
    assert "star hosts=3" in text
    assert cli("down", standing) == f"fabric {standing} is down\n"
    assert traces(standing) == []


def test_up_uses_the_real_clock(star: str, tmp_path: Path) -> None:
    (tmp_path / "rail.yaml").write_text(RAIL_REAL)
    up = json.loads(told("up", star, "--json"))
    try:
        assert up["clock"] == "real"
        assert up["dilation"] > 1
        assert up["ranks"]["1"] == {"name": "h1", "host": "h1", "ip": "10.0.0.2"}
        other = json.loads(told("up", str(tmp_path / "rail.yaml"), "--json"))
        try:
            assert other["dilation"] == 1000
            assert "1 received" in cli("shell", other["id"], "-c", "h0 ping -c1 h1")
            assert "1 received" in cli("shell", up["id"], "-c", "h0 ping -c1 h1")
        finally:
            told("down", other["id"])
    finally:
        told("down", up["id"])
    assert traces(up["id"]) == traces(other["id"]) == []


def test_the_fabric_outlives_the_command_and_its_session(star: str) -> None:
    command = ["setsid", "--wait", *TESTBED, "up", star, "--virtual", "--json"]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, cwd=ROOT, check=True)
    fabric_id = json.loads(done.stdout)["id"]
    try:
        lab = Lab.attach(fabric_id)
        assert lab.record.standing
        lab.close()
    finally:
        cli("down", fabric_id)


def test_a_dead_controller_is_said(standing: str) -> None:
    lab = Lab.attach(standing)
    lab.close()
    os.kill(lab.controller.pid, signal.SIGKILL)
    wait_until(lambda: lab.controller.poll() is not None, "it is dead")
    assert f"the controller of {standing} has died" in told("status", "--all")


def test_down_of_a_run_in_progress_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with Lab.up(loads(STAR, "star.yaml")) as lab:
        monkeypatch.setattr(ownership, "fabrics", lambda: [Record.read(lab.dir)])  # others' tests have theirs up
        assert CliRunner().invoke(down.command, ["--all"]).output == "no fabric is up\n"
        done = subprocess.run([*TESTBED, "down", lab.id], capture_output=True, text=True, cwd=ROOT, check=False)
        assert done.returncode == 1
        assert f"in use by process {os.getpid()}" in done.stderr
        assert lab.fabricd.request("status")["ok"]


@pytest.mark.parametrize(
    ("args", "code", "words"),
    [
        (["down", "zzzz"], 2, "no fabric zzzz"),
        (["shell", "zzzz"], 2, "no fabric zzzz"),
        (["exec", "--fabric", "zzzz", "0", "--", "id"], 2, "no fabric zzzz"),
        (["exec", "0", "--fabric", "zzzz", "--", "id"], 2, "no fabric zzzz"),
        (["clean", "zzzz"], 2, "no fabric zzzz"),
        (["clean", "--force"], 2, "needs the id"),
        (["down", "zzzz", "--all"], 2, "not both"),
        (["up", "/no/such/file.yaml"], 2, "/no/such/file.yaml"),
    ],
)
def test_mistakes_are_told_without_a_traceback(args: list[str], code: int, words: str) -> None:
    done = here(*args)
    assert done.returncode == code, done.stderr
    assert words in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("lack", ["root", "ovs", "runc"])
def test_a_machine_that_cannot(lack: str, star: str, tmp_path: Path) -> None:
    command, env = [*TESTBED, "up", star, "--json"], dict(os.environ)
    if lack == "root":
        readable = ROOT / "experiments" / "quickstart.yaml"
        command = [*TESTBED, "up", str(readable), "--json"]
        command = ["setpriv", "--reuid", "65534", "--clear-groups", "--inh-caps=-all", *command]
    else:
        for tool in ("ip", "mnexec", "ovs-vsctl", "ovs-vswitchd", "runc"):
            if not tool.startswith(lack):
                (tmp_path / tool).symlink_to(str(shutil.which(tool)))
        env["PATH"] = str(tmp_path)
    with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True, cwd=ROOT) as up:
        out, _ = up.communicate()
    assert up.returncode == 3
    error = json.loads(out)["error"]
    assert {"root": "needs root", "ovs": "ovs-vsctl is not", "runc": "runc is not"}[lack] in error["what"]
    assert error["hint"]
    assert fabrics_begun_by(up.pid) == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_stopped_up_leaves_nothing(number: int, star: str) -> None:
    with subprocess.Popen([*TESTBED, "up", star], cwd=ROOT, stderr=subprocess.DEVNULL) as up:
        wait_until(lambda: fabrics_begun_by(up.pid), "it has begun")
        (fabric_id,) = fabrics_begun_by(up.pid)
        up.send_signal(number)
        assert up.wait(60) != 0
    assert traces(fabric_id) == []


def test_stopped_as_soon_as_it_is_begun_it_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[str] = []
    create = ownership.create

    def create_and_stop() -> tuple[Record, Journal, LockFile]:
        made = create()
        begun.append(made[0].id)
        os.kill(os.getpid(), signal.SIGTERM)
        return made

    def stop(number: int, _frame: object) -> None:
        raise SystemExit(128 + number)

    monkeypatch.setattr(ownership, "create", create_and_stop)
    before = signal.signal(signal.SIGTERM, stop)
    try:
        with pytest.raises(SystemExit):
            Lab.up(loads(STAR, "star.yaml"))
    finally:
        signal.signal(signal.SIGTERM, before)
    (fabric_id,) = begun
    assert traces(fabric_id) == []


@pytest.mark.parametrize("where", ["up", "down"])
def test_stopped_once_more_while_it_is_taken_down_it_leaves_nothing(
    where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[str] = []
    kill = ownership._kill

    def kill_and_stop(record: Record, last: set[int]) -> int:
        begun.append(record.id)
        signal.raise_signal(signal.SIGINT)
        return kill(record, last)

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    if where == "up":
        monkeypatch.setattr(bringup.Controller, "wait_programmed", interrupt)
    monkeypatch.setattr(ownership, "_kill", kill_and_stop)
    with pytest.raises(KeyboardInterrupt), Lab.up(loads(STAR, "star.yaml")):
        pass
    (fabric_id,) = begun
    assert traces(fabric_id) == []


# -- killed


def test_killed_at_random_nothing_is_left_and_nothing_else_touched() -> None:
    """A short piece of what `./setup.sh prove kills` does at length."""
    count = prove_kills.prove(kills=4, seed=1)
    assert count.total() == 4


def test_an_up_that_is_killed_half_way_dies_whole(tmp_path: Path) -> None:
    up = prove_kills.begin(tmp_path, "up", prove_kills.UP)

    def begun() -> bool:
        return any("controller" in prove_kills.record_of(i).processes for i in fabrics_begun_by(up.pid))

    wait_until(begun, "it has begun")
    (fabric_id,) = prove_kills.dies(up)
    assert prove_kills.record_of(fabric_id).state == "dead"
    assert f"removed fabric {fabric_id}" in told("clean", fabric_id)
    assert traces(fabric_id) == []


def test_a_holder_whose_owner_dies_before_its_answer_still_ends_the_fabric() -> None:
    mark = {**os.environ, "RAILBED_FABRIC": f"test-{os.urandom(8).hex()}"}
    command = [str(bringup.HOLDER)]
    with (
        subprocess.Popen(["sleep", "600"], env=mark) as part,
        subprocess.Popen(command, env=mark, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder,
    ):
        assert holder.stdin is not None
        assert holder.stdout is not None
        try:
            assert json.loads(holder.stdout.readline()) == {"ready": True}
            holder.stdout.close()
            holder.stdin.write(b'{"names": ["h0"], "group": "railbed-none"}\n')
            holder.stdin.close()
            assert part.wait(60) == -signal.SIGKILL
        finally:
            part.kill()
            holder.kill()


@pytest.mark.parametrize("victim", [*PARTS, "host h1", "everything"])
def test_kill_a_part_of_a_standing_fabric(victim: str, standing: str) -> None:
    lab = Lab.attach(standing)
    lab.containers.idle(0)
    lab.close()
    victims = lab.record.processes.values() if victim == "everything" else [lab.record.processes[victim]]
    with strangers() as all_there:
        for process in victims:
            process.signal(signal.SIGKILL)
        wait_until(lambda: not any(p.alive() for p in victims), "they are dead")
        if victim != "controller":  # it ends with its parts
            wait_until(lambda: ownership.find(standing).state == "dead", "the fabric to be dead")
            assert json.loads(told("clean", standing, "--json"))["removed"][0]["id"] == standing
        else:
            refused = here("clean", standing)
            assert refused.returncode == 1
            assert "in use" in refused.stderr
            told("down", standing)
        assert traces(standing) == []
        all_there()


def test_kill_the_owner_of_a_run() -> None:
    """As `testbed run` does: a fabric with workers, whose owner is killed. Its helpers die by themselves."""
    program = (
        "import sys, time; from testbed.fabric.lab import Lab; from testbed.experiment import loads\n"
        f"lab = Lab.up(loads({STAR!r}, 'star.yaml'))\n"
        "for rank in range(3): lab.start_worker(rank, ['sh', '-c', 'while :; do :; done'], stdout=None, stderr=None)\n"
        "print(lab.id, flush=True); time.sleep(600)"
    )
    with subprocess.Popen([TESTBED[0], "-c", program], stdout=subprocess.PIPE, text=True, cwd=ROOT) as owner:
        assert owner.stdout is not None
        fabric_id = owner.stdout.readline().strip()
        lab = Lab.attach(fabric_id)
        lab.close()
        owner.kill()
    wait_until(lambda: marked(fabric_id) == [], "everything that runs dies with its owner, workers too")
    with strangers() as all_there:
        assert f"removed fabric {fabric_id}" in told("clean")
        assert traces(fabric_id) == []
        all_there()


def test_kill_clean_itself(standing: str) -> None:
    """An interrupted `clean` or `down` is taken up by the next."""
    lab = Lab.attach(standing)
    lab.close()
    for delay in (0.15, 0.25, 0.35):
        with subprocess.Popen([*TESTBED, "down", standing], cwd=ROOT, stdout=subprocess.DEVNULL) as down:
            time.sleep(delay)
            down.kill()
        if standing not in fabric_ids():
            break
    if standing in fabric_ids():
        told("clean", standing, "--force")
    assert traces(standing) == []


def test_fabricd_is_the_one_that_was_built() -> None:
    assert BINARY.exists()
