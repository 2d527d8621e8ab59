"""Drills on real worlds: played, played again, from other shells, sealed, killed."""

from __future__ import annotations

import json
import os
import random
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from drills import log as logs
from drills.game import Game
from drills.play import client
from drills.replay import replayed
from drills.sheet import file
from drills.sheet.case import Case
from testbed.base.errors import InputError, UserError
from testbed.fabric.lab import Lab
from testbed.machine import ownership
from testbed.machine.processes import wait_for
from tests import prove_drill_kills
from tests.parts.drills import ALL_ASKED, clos
from tests.parts.machine import here

TEXT = clos(0.20317) + ALL_ASKED + "budget: {emulated: 2ms}\n"


@pytest.fixture
def drill(tmp_path: Path) -> Path:
    path = tmp_path / "small.yaml"
    path.write_text(TEXT)
    return path


@pytest.fixture
def session(drill: Path, tmp_path: Path) -> Iterator[client.Remote]:
    remote = client.start(file.load(str(drill)), "7Q4", healthy=False, out=str(tmp_path / "game.log"))
    yield remote
    if alive(remote.fabric):
        remote.close()
    assert wait_for(lambda: not (ownership.RUN_DIR / remote.fabric).exists(), 60)


def alive(fabric: str) -> bool:
    return any(record.id == fabric and record.state == "alive" for record in ownership.fabrics())


def typed(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "testbed", *words], capture_output=True, text=True, timeout=60)


def test_played_twice_it_is_the_same_to_the_byte(drill: Path, tmp_path: Path) -> None:
    game = Game.start(Case.of(file.load(str(drill)), "7Q4", False))
    try:
        assert game.time_ns == 100_000
        (cause,) = game.stage.drawn.truth
        port = next(name for name in cause.resources if name.startswith("port:leaf")).removeprefix("port:")
        drain = f"config interface shutdown {port}"
        for line in ("advance 33us", "show drops", drain, "probe lat 0 1", "advance 2 steps", f"submit {cause}"):
            assert game.command(line).ok, line
        assert game.ending is not None and game.ending.score.where == 1.0
        assert game.ending.score.fixed == 1.0 and game.ending.lost_steps == 0.0
        path = tmp_path / "game.log"
        game.log().write(path)
    finally:
        game.close()
    again = replayed(path)
    assert (again.differs, again.score) == ("", game.ending.score.total)


def test_from_other_shells(session: client.Remote) -> None:
    fabric = session.fabric
    assert "TICKET  Steps take longer" in session.ticket()["shown"]
    assert json.loads(typed("drill", "advance", "10us", "--fabric", fabric, "--json").stdout)["time_ns"] == 110_000
    shown = typed("drill", "show", "interfaces", "counters", "--fabric", fabric)
    assert shown.returncode == 0 and "leaf0:1" in shown.stdout
    assert session.state()["time_ns"] == 110_000
    wrong = typed("drill", "submit", "loss@cable:leaf0-spine9", "--fabric", fabric)
    assert wrong.returncode == 2 and "there is no such cable" in wrong.stderr


def test_other_commands_leave_its_fabric_alone(session: client.Remote) -> None:
    fabric = session.fabric
    with pytest.raises(UserError, match="belongs to a drill"):
        Lab.attach(fabric)
    for words in (
        ("show", "faults", fabric),
        ("inject", "loss", "--on", "all", "--rate", "0.1", "--fabric", fabric),
        ("heal", "all", "--fabric", fabric),
        ("ovs", fabric, "ovs-vsctl", "show"),
        ("down", fabric),
    ):
        done = here(*words)
        assert done.returncode == 2 and "belongs to a drill" in done.stderr, words


def reachable(fabric: str) -> dict[str, bytes]:
    """All files of a fabric, arguments and environments of its processes."""
    record = next(record for record in ownership.fabrics() if record.id == fabric)
    files = [path for path in record.dir.rglob("*") if path.is_file() and not path.is_symlink()]
    found = {str(path.relative_to(record.dir)): path.read_bytes() for path in files if path.suffix != ".processes"}
    for name, process in {**record.processes, "drilld": record.owner}.items():
        assert process is not None
        for what in ("cmdline", "environ"):
            found[f"{name} {what}"] = Path(f"/proc/{process.pid}/{what}").read_bytes()
    return found


def test_what_lies_on_the_machine_tells_nothing(session: client.Remote, drill: Path, tmp_path: Path) -> None:
    there = reachable(session.fabric)
    for name, content in there.items():
        for word in (
            b"0.20317",
            b"small.yaml",
            b"7q4",
            b"steps take longer",
            b"carries",
            b"truth",
            b"faulty",
            b'"fault',
        ):
            assert word not in content.lower(), (name, word)
    healthy = client.start(file.load(str(drill)), "7Q4", healthy=True, out=str(tmp_path / "healthy.log"))
    try:
        twin = reachable(healthy.fabric)
    finally:
        healthy.close()
    assert there.keys() == {name.replace(healthy.fabric, session.fabric) for name in twin}
    for name in ("experiment.json", "fabric.json", "controller.log", "controller.out", "fabricd.log"):
        one, other = (re.sub(rb"\d\d:\d\d:\d\d\.\d+", b"", found.get(name, b"")) for found in (there, twin))
        # whether the controller has waited for fabricd hangs on how long that takes to start
        waits = rb"fabricd: [\w/.]+\.sock: (?:No such file or directory|Connection refused); trying again$"
        one, other = (sorted(line for line in log.splitlines() if not re.search(waits, line)) for log in (one, other))
        assert one == other, name


def test_fabricd_is_not_told_what_a_fault_is_called(drill: Path) -> None:
    """It knows what is done to frames, and neither the class nor which is a herring. Who mends it finds it all the
    same."""
    game = Game.start(Case.of(file.load(str(drill)), "7Q4", False))
    try:
        fabricd = game.stage.world.lab.fabricd
        (fault,) = fabricd.request("faults")["faults"]
        assert "about" not in fault["request"] and "loss" not in json.dumps(fault), fault
        (cause,) = game.stage.drawn.truth
        assert game.command(f"config cable replace {cause.place.removeprefix('cable:')}").ok
        assert [one for one in fabricd.request("faults")["faults"] if not one["request"].get("operator")] == []
    finally:
        game.close()


def test_a_sealed_drill_has_one_player(drill: Path, tmp_path: Path) -> None:
    mine = client.start(file.load(str(drill)), "7Q4", healthy=False, exam=True, out=str(tmp_path / "game.log"))
    try:
        assert mine.ticket()["seed"] is None
        other = client.Remote(mine.fabric)
        with pytest.raises(InputError, match="has its player"):
            other.command("status")
        other.leave()
        assert mine.command("status").ok
    finally:
        mine.leave()  # who leaves has given up
    assert wait_for(lambda: not (ownership.RUN_DIR / mine.fabric).exists(), 60)
    assert logs.read(tmp_path / "game.log").end["score"]["total"] == 0.0


def test_a_sealed_drill_that_is_closed_leaves_its_log(drill: Path, tmp_path: Path) -> None:
    client.start(file.load(str(drill)), "7Q4", healthy=False, exam=True, out=str(tmp_path / "game.log")).close()
    assert logs.read(tmp_path / "game.log").end["answer"] is None


def test_killed_it_leaves_what_clean_removes(drill: Path, tmp_path: Path) -> None:
    session = client.start(file.load(str(drill)), "7Q4", healthy=False, out=str(tmp_path / "game.log"))
    record = next(record for record in ownership.fabrics() if record.id == session.fabric)
    assert record.owner is not None
    os.kill(record.owner.pid, signal.SIGKILL)
    with pytest.raises(UserError, match="has ended"):
        session.command("status")
    session.leave()
    assert wait_for(lambda: not alive(session.fabric), 60)
    assert ownership.clean(session.fabric)[0].id == session.fabric
    assert not record.dir.exists()


def test_its_server_ends_when_its_fabric_is_taken_away(session: client.Remote) -> None:
    record = next(record for record in ownership.fabrics() if record.id == session.fabric)
    server = record.owner
    assert server is not None
    assert ownership.clean(session.fabric, force=True)[0].id == session.fabric
    assert wait_for(lambda: not server.alive(), 60)
    assert not record.dir.exists()


@pytest.mark.parametrize(("victim", "moment"), [("server", "as it comes up"), ("everything", "while it is on")])
def test_killed_nothing_is_left(victim: str, moment: str, tmp_path: Path) -> None:
    """A short piece of what `./setup.sh prove drill-kills` does at length."""
    prove_drill_kills.struck(victim, moment, random.Random(3), tmp_path, alone=False)


def test_a_drill_that_is_wrong_is_refused_before_anything_is_made(tmp_path: Path) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text(TEXT.replace("[leaf, spine]", "[leaf, core]"))
    done = typed("drill", "start", str(path))
    assert done.returncode == 2
    assert f"no cable is between leaf and core\n  at: {path}:7: draw.bad.between" in done.stderr
