"""An instructor beside a player: what he does counts exactly, and the player's side learns nothing of it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from drills import log as logs
from drills.game import Game
from drills.instructor import Instructor
from drills.play import client
from drills.replay import replayed
from drills.sheet import file
from drills.sheet.case import Case
from testbed.base.errors import InputError
from tests.parts.drills import ALL_ASKED, star

DRILL = star(3, "Is anything wrong?") + ALL_ASKED + "hints: [Look at the counters.]\nbudget: {emulated: 2ms}\n"
INJECT = "inject reduced_rate@cable:h1-sw0 rate=100Gbps"


@pytest.fixture
def drill(tmp_path: Path) -> Path:
    path = tmp_path / "small.yaml"
    path.write_text(DRILL)
    return path


@pytest.fixture
def session(drill: Path, tmp_path: Path) -> Iterator[client.Remote]:
    remote = client.start(file.load(str(drill)), "7Q4", healthy=True, out=str(tmp_path / "game.log"))
    yield remote
    remote.close()


def test_what_he_injects_is_scored_and_played_again_to_the_byte(drill: Path, tmp_path: Path) -> None:
    game = Game.start(Case.of(file.load(str(drill)), "7Q4", True))
    teacher = Instructor(game)
    try:
        assert game.command("advance 30us").ok
        before = game.seal.commitment
        assert teacher.command(INJECT).ok
        assert teacher.command("hint which hop is slow?").ok
        assert game.ticket()["sealed"] == before
        for line in ("advance 2 steps", "config interface speed sw0:2 400Gbps", "advance 1 step", "submit healthy"):
            assert game.command(line).ok, line
        assert game.command("submit reduced_rate@cable:h1-sw0").ok
        assert game.ending is not None
        score = game.ending.score
        assert (score.where, score.what, score.hints, score.wrong) == (1.0, 1.0, 5.0, 10.0)
        assert score.fixed == pytest.approx(1.0, abs=0.01)
        path = tmp_path / "game.log"
        game.log().write(path)
    finally:
        game.close()
    log = logs.read(path)
    assert (log.head["truth"], log.end["truth"]) == ("healthy", "reduced_rate@cable:h1-sw0")
    again = replayed(path)
    assert (again.differs, again.score) == ("", score.total)
    without = [entry for entry in log.entries if not entry.line.startswith("inject")]
    logs.Log(log.head, tuple(without), log.end).write(path)
    assert "the world after it is another" in replayed(path).differs


def test_he_pauses_says_and_forks_and_the_player_learns_no_more(session: client.Remote) -> None:
    with pytest.raises(InputError, match="not the code"):
        client.Desk(session.fabric, "0" * 16).command("truth")
    assert "there is no 'watch'" in str(_refused(session))
    desk = client.Desk(session.fabric, session.instructor)
    assert "healthy" in desk.command("truth").text
    assert desk.command("pause").ok
    answer = session.command("advance 10us")
    assert not answer.ok and "paused" in answer.text and session.command("show job").ok
    assert desk.command("resume").ok and session.command("advance 10us").ok
    assert desk.command(INJECT).ok and desk.command("say go on").ok
    wrong = desk.command("inject loss@cable:h9-sw0 rate=0.1")
    assert not wrong.ok and "h9-sw0" in wrong.text
    told = desk.watch(0)
    assert [row["line"] for row in told["transcript"]][:3] == ["advance 10us", "show job", "advance 10us"]
    assert told["truth"]["truth"] == "reduced_rate@cable:h1-sw0"
    heard = json.dumps([session.state(), session.ticket(), *(vars(session.command(x)) for x in ("actions", "status"))])
    assert "go on" in heard
    for word in ("reduced_rate@", "inject", "truth"):
        assert word not in heard
    other = desk.fork()
    try:
        assert other.state()["steps"] == session.state()["steps"]
        assert client.Desk(other.fabric, other.instructor).watch()["truth"]["truth"] == "reduced_rate@cable:h1-sw0"
    finally:
        other.close()


def _refused(session: client.Remote) -> InputError:
    with pytest.raises(InputError) as refused:
        session._ask("watch")
    return refused.value
