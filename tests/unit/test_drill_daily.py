"""The drill of the day; leaderboards tell whose choice a seed was."""

from __future__ import annotations

import itertools
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from drills import log as logs
from drills.game import Game
from drills.play.ranking import ranked
from drills.sheet import daily, file
from drills.sheet.case import Case, healthy_by_seed, seed_of
from drills.sheet.daily import CHOSEN, DRAWN, OF_SUITE, is_daily, of_day
from testbed.commands.drill import command
from tests.parts.fake_world import FakeWorld
from tests.parts.small_game import LOSSY

DAY = date(2026, 3, 1)
SEEN = itertools.count()


def test_a_day_has_one_drill_and_one_seed_and_another_day_others() -> None:
    its = of_day(DAY)
    assert (of_day(DAY).drill.id, of_day(DAY).seed) == (its.drill.id, its.seed) and its.day == "2026-03-01"
    assert its.drill.id in file.catalogue() and seed_of(its.seed) == its.seed
    days = [of_day(DAY + timedelta(days=k)) for k in range(12)]
    assert len({one.seed for one in days}) == 12 and len({one.drill.id for one in days}) > 6


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is the day after."""
    monkeypatch.setattr(daily, "today", lambda: DAY + timedelta(days=1))


def test_only_the_whole_drill_of_a_day_that_has_come_is_that_days(later: None, monkeypatch: pytest.MonkeyPatch) -> None:
    its = of_day(DAY)
    well = healthy_by_seed(its.drill, its.seed)
    said = {"drill": its.drill.id, "text": its.drill.text, "seed": its.seed, "healthy": well}
    assert is_daily(its.day, **said)
    for other in ({"drill": "a/b"}, {"text": its.drill.text + " "}, {"seed": "7Q4"}, {"healthy": not well}):
        assert not is_daily(its.day, **{**said, **other}), other
    assert not is_daily("2026-03-02", **said) and not is_daily("today", **said)
    monkeypatch.setattr(daily, "today", lambda: DAY - timedelta(days=1))
    assert not is_daily(its.day, **said), "a day to come"


def log_of(folder: Path, name: str, player: str, seed: str, seed_by: str, **head: Any) -> None:
    """Each began a second after the one before."""
    case = Case.of(file.loads(LOSSY, "d.yaml"), seed, healthy=False)
    game = Game.start(case, player=player, seed_by=seed_by, up=FakeWorld)  # type: ignore[arg-type]
    game.command(f"submit {' '.join(map(str, game.stage.drawn.truth))}")
    log = game.log()
    told = {"began": f"2026-03-01T10:00:{next(SEEN) % 60:02}.000+00:00", **head}
    logs.Log({**log.head, **told}, log.entries, log.end).write(folder / f"{name}.log")


def test_a_leaderboard_tells_whose_choice_seeds_were(tmp_path: Path) -> None:
    log_of(tmp_path, "1", "ada", "7Q4", DRAWN)
    log_of(tmp_path, "2", "ada", "7Q5", DRAWN)
    log_of(tmp_path, "3", "eve", "7Q6", CHOSEN)
    log_of(tmp_path, "4", "bot", "7Q7", OF_SUITE)
    log_of(tmp_path, "5", "ida", "7Q8", "2026-03-01")  # it was not this one
    board, refused = ranked(tmp_path, up=FakeWorld)  # type: ignore[arg-type]
    assert not refused
    rows = {(row["player"], row["seeds"]): row["games"] for row in board}
    assert rows == {("ada", "drawn"): 2, ("bot", "suite"): 1, ("eve", "chosen"): 1, ("ida", "chosen"): 1}
    assert [row["seeds"] for row in board][-2:] == ["chosen", "chosen"]


def test_a_world_that_was_played_before_counts_as_chosen(tmp_path: Path) -> None:
    log_of(tmp_path, "1", "ada", "7Q4", DRAWN)
    log_of(tmp_path, "2", "ada", "7Q4", DRAWN)
    log_of(tmp_path, "3", "ida", "7Q4", DRAWN)
    board, _ = ranked(tmp_path, up=FakeWorld)  # type: ignore[arg-type]
    assert [(row["player"], row["seeds"]) for row in board] == [("ada", "drawn"), ("ida", "drawn"), ("ada", "chosen")]


def test_the_first_game_is_the_first_by_its_time_and_not_by_its_files_name(tmp_path: Path) -> None:
    log_of(tmp_path, "a", "ada", "7Q4", CHOSEN, began="2026-03-01T11:00:00.000+00:00")
    log_of(tmp_path, "b", "ada", "7Q4", DRAWN, began="2026-03-01T11:59:59.000+01:00")  # a second sooner
    log_of(tmp_path, "c", "ida", "7Q4", DRAWN, began="2026-03-01T11:00:00.000+00:00")
    for name, began in (("0", None), ("1", "soon")):
        log_of(tmp_path, name, "ida", "7Q4", DRAWN, began=began)
    board, refused = ranked(tmp_path, play=False)
    assert not refused
    games = {(row["player"], row["seeds"]): row["games"] for row in board}
    assert games == {("ada", "drawn"): 1, ("ada", "chosen"): 1, ("ida", "drawn"): 1, ("ida", "chosen"): 2}


def test_a_game_whose_instructor_has_looked_in_counts_as_chosen(tmp_path: Path) -> None:
    for name, by in (("1", DRAWN), ("2", OF_SUITE)):
        log_of(tmp_path, name, "ada", f"7Q{name}", by, instructed=True)
    assert [(row["seeds"], row["games"]) for row in ranked(tmp_path, play=False)[0]] == [("chosen", 2)]


def test_a_game_of_a_day_is_listed_as_such(tmp_path: Path, later: None) -> None:
    its = of_day(DAY)
    well = healthy_by_seed(its.drill, its.seed)
    head: dict[str, Any] = {"drill": its.drill.id, "text": its.drill.text, "healthy": well}
    log_of(tmp_path, "1", "ada", its.seed, its.day, **head)
    log_of(tmp_path, "2", "eve", its.seed, its.day, **{**head, "text": LOSSY})
    log_of(tmp_path, "3", "ida", its.seed, its.day, **head, instructed=True)
    board, _ = ranked(tmp_path, play=False)
    rows = {row["player"]: row["seeds"] for row in board}
    assert rows == {"ada": "daily", "eve": "chosen", "ida": "chosen"}


@pytest.mark.parametrize(
    ("words", "by"), [([], DRAWN), (["--faulty"], CHOSEN), (["--seed", "7Q4"], CHOSEN), (["--exam"], DRAWN)]
)
def test_who_asks_for_a_fault_has_chosen(words: list[str], by: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    def start(*_: Any, seed_by: str, **__: Any) -> None:
        asked.append(seed_by)
        raise SystemExit

    monkeypatch.setattr("drills.play.client.start", start)
    monkeypatch.setattr("testbed.base.errors.require_root", lambda: None)
    CliRunner().invoke(command, ["start", "lost/dirty-optics", *words])
    assert asked == [by]


def test_a_log_of_another_version_is_said_to_be_that(tmp_path: Path) -> None:
    log_of(tmp_path, "old", "ada", "7Q4", DRAWN, version="0.0.1")
    log_of(tmp_path, "rules", "ada", "7Q5", DRAWN, rules=None)
    log_of(tmp_path, "this", "ada", "7Q6", DRAWN)
    board, refused = ranked(tmp_path, up=FakeWorld)  # type: ignore[arg-type]
    assert [row["games"] for row in board] == [1] and sorted(refused) == ["old.log", "rules.log"]
    assert f"written by another version (0.0.1, rules {logs.RULES}; here" in refused["old.log"]
    assert "rules unknown; here" in refused["rules.log"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["start"], "which drill?"),
        (["start", "lost/dirty-optics", "--daily"], "chosen by the day"),
        (["start", "--daily", "--seed", "7Q4"], "chosen by the day"),
        (["start", "--daily", "--exam"], "chosen by the day"),
        (["start", "--daily", "--faulty"], "whether anything is wrong"),
        (["serve", "--daily", "--jsonl"], "a drill for a program is sealed"),
        (["serve", "--daily", "--web", "--fabric", "3f2a"], "--fabric is for a drill that is on"),
    ],
)
def test_what_does_not_go_with_the_day(words: list[str], said: str) -> None:
    result = CliRunner().invoke(command, words)
    assert result.exit_code and said in str(result.exception)
