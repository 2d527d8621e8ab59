"""A game's log: read back, refused where it is none, played again, ranked."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from drills import log as logs
from drills.play.ranking import ranked
from drills.replay import Replayed, replayed
from drills.session import Answer
from testbed.base.errors import InputError
from testbed.commands import drill
from tests.parts.fake_world import FakeWorld
from tests.parts.small_game import TEXT, game_of, truth


@pytest.fixture
def written(tmp_path: Path) -> Path:
    game = game_of()
    game.command("advance 100us")
    game.command(f"submit {truth(game)}")
    game.log().write(tmp_path / "game.log")
    return tmp_path / "game.log"


def test_a_log_is_read_back_as_it_was_written(written: Path) -> None:
    log = logs.read(written)
    assert [e.line for e in log.entries][0] == "advance 100us" and log.end["score"]["total"] > 90
    assert log.head["text"] == TEXT and log.lines() == written.read_text().splitlines()[:-1]


def test_a_log_with_any_byte_changed_is_refused(written: Path) -> None:
    raw = written.read_bytes()
    for at in range(0, len(raw) - 1, 37):
        written.write_bytes(raw[:at] + bytes([raw[at] ^ 1]) + raw[at + 1 :])
        with pytest.raises(InputError):
            logs.read(written)


def test_a_log_that_is_cut_or_none_is_refused(written: Path, tmp_path: Path) -> None:
    lines = written.read_text().splitlines()
    for left in range(len(lines)):
        written.write_text("\n".join(lines[:left]) + "\n")
        with pytest.raises(InputError):
            logs.read(written)
    with pytest.raises(InputError, match="there is no such file"):
        logs.read(tmp_path / "none.log")


def test_what_is_no_log_is_not_read_to_its_end(written: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    os.mkfifo(fifo := written.parent / "fifo.log")
    for path in (fifo, Path("/dev/zero")):
        with pytest.raises(InputError, match="no ordinary file"):
            logs.read(path)
    monkeypatch.setattr(logs, "MOST_BYTES", 1 << 20)
    with open(huge := written.parent / "huge.log", "wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(InputError, match="larger than 1 MiB"):
        logs.read(huge)
    board, refused = ranked(written.parent, up=FakeWorld)  # type: ignore[arg-type]
    assert len(board) == 1 and sorted(refused) == ["fifo.log", "huge.log"]


EVIL = "\x1b]0;owned\x07\x1b[2J\x9b1mada"
FORGED: dict[str, Any] = {
    "head.player": [EVIL, "eve\nsigned: ada", 7], "head.drill": [EVIL, None], "head.seed": ["7Q4\n", 7],
    "head.healthy": ["no", 1], "head.exam": [None], "head.rules": ["3"], "head.text": [[]],
    "entries.time_ns": ["0", 1.5], "entries.took_ns": [None], "entries.line": [7], "entries.acts": ["yes"],
    "entries.notes": [[7], "many"], "entries.digest": [0],
    "end.score": [7, {"total": "100"}, {"total": float("inf")}], "end.truth": [EVIL, 7], "end.answer": [{}],
    "end.report": ["none"], "end.time_ns": ["soon"],
}  # fmt: skip


@pytest.mark.parametrize("at", FORGED)
def test_a_log_that_somebody_has_written_himself_is_refused(written: Path, at: str) -> None:
    """Hash and all."""
    log = logs.read(written)
    part, *path = at.split(".")
    for value in FORGED[at]:
        told = [json.loads(line) for line in log.lines()]
        inner = {"head": told[0], "entries": told[1], "end": told[-1].get("end")}[part]
        inner[path[-1]] = value
        lines = [json.dumps(one) for one in told]
        written.write_text("\n".join([*lines, json.dumps({"sha256": logs._hash(lines)})]) + "\n")
        for command in (["report", str(written)], ["replay", str(written), "--verify"]):
            said = CliRunner().invoke(drill.command, command)
            assert isinstance(said.exception, InputError) and path[-1] in said.exception.what, said.output
        said = CliRunner().invoke(drill.command, ["leaderboard", str(written.parent), "--trust"])
        assert not {"\x1b", "\x07", "\x9b"} & set(said.output) and path[-1] in said.output


def test_a_line_in_a_log_moves_no_cursor(written: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = logs.read(written)
    line = replace(log.entries[0], line=f"{EVIL}\nthe same in every state")
    logs.Log(log.head, (line, *log.entries[1:]), log.end).write(written)

    def again(log: logs.Log, name: str, on_line: Any) -> Replayed:
        on_line(log.entries[0], Answer(True, 0, EVIL))
        return Replayed(log, "", 1.0)

    monkeypatch.setattr("drills.replay.replay", again)
    said = CliRunner().invoke(drill.command, ["replay", str(written)]).output
    assert not {"\x1b", "\x07", "\x9b"} & set(said) and said.count("\nthe same in every state") == 1


def test_played_again_it_is_the_same_or_it_is_said_where_it_is_not(written: Path) -> None:
    def again() -> str:
        return replayed(written, FakeWorld).differs  # type: ignore[arg-type]

    assert again() == ""
    log = logs.read(written)
    other = replace(log.entries[0], line="advance 90us", took_ns=90_000)
    logs.Log(log.head, (other, *log.entries[1:]), log.end).write(written)  # whole, and not what was played
    assert again() == "line 1 (advance 90us): the world after it is another"
    better = {**log.end, "score": {**log.end["score"], "total": 100.0}}
    logs.Log(log.head, log.entries, better).write(written)
    assert again().startswith("the end is another: score ")
    logs.Log({**log.head, "salt": "0"}, log.entries, log.end).write(written)
    assert again() == "its truth is not the one that was sealed"


def test_a_leaderboard_plays_every_game_again(written: Path) -> None:
    board, refused = ranked(written.parent, up=FakeWorld)  # type: ignore[arg-type]
    assert [(row["player"], row["games"], row["rca_f1"]) for row in board] == [("-", 1, 1.0)] and refused == {}
    log = logs.read(written)
    end = {**log.end, "score": {**log.end["score"], "total": 100.0}}
    logs.Log({**log.head, "player": "eve"}, log.entries, end).write(written.parent / "eve.log")
    (written.parent / "torn.log").write_text(written.read_text()[:-9])
    board, refused = ranked(written.parent, up=FakeWorld)  # type: ignore[arg-type]
    assert [row["player"] for row in board] == ["-"] and sorted(refused) == ["eve.log", "torn.log"]
    with pytest.raises(InputError, match="no log of a drill"):
        ranked(written.parent / "none")


def test_a_bad_log_is_refused_and_the_others_count(written: Path) -> None:
    log = logs.read(written)
    head = {key: value for key, value in log.head.items() if key != "salt"}
    acting = replace(log.entries[0], line="status", acts=True)
    bad = {
        "salt.log": logs.Log(head, log.entries, log.end),
        "look.log": logs.Log(log.head, (acting, *log.entries[1:]), log.end),
        "easier.log": logs.Log({**log.head, "drill": "lost/dirty-optics"}, log.entries, log.end),
        "end.log": logs.Log(log.head, log.entries, {"truth": ["x"]}),
    }
    for name, one in bad.items():
        one.write(written.parent / name)
    (written.parent / "deep.log").write_text("[" * 100_000)
    board, refused = ranked(written.parent, up=FakeWorld)  # type: ignore[arg-type]
    assert [row["games"] for row in board] == [1] and sorted(refused) == sorted([*bad, "deep.log"])
    assert "is not lost/dirty-optics" in refused["easier.log"] and "look.log" in refused
    logs.Log(log.head, log.entries, {}).write(written.parent / "end.log")
    assert "end.log" in ranked(written.parent, play=False)[1]
