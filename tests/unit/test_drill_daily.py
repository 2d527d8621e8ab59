"""The drill of the day; leaderboards tell whose choice a seed was."""

from __future__ import annotations

from datetime import date, timedelta
from pathlib import Path

import pytest
from click.testing import CliRunner

from testbed.commands.drill import command
from testbed.drill import log as logs
from testbed.drill.game import Game
from testbed.drill.ranking import ranked
from testbed.drill.sheet import file
from testbed.drill.sheet.case import Case, seed_of
from testbed.drill.sheet.daily import CHOSEN, DRAWN, OF_SUITE, is_daily, of_day
from tests.parts.fake_world import FakeWorld

DAY = date(2026, 3, 1)
TEXT = """
title: Steps take longer
level: easy
fabric: {topology: {clos: {leaves: 2, spines: 2, hosts_per_leaf: 4}}}
job: {collective: all_reduce, algorithm: ring, size: 64KiB}
draw: {bad: {any: cable, between: [leaf, spine], carries: job}}
faults: [{fault: loss, on: $bad, rate: 0.02}]
"""


def test_a_day_has_one_drill_and_one_seed_and_another_day_others() -> None:
    its = of_day(DAY)
    assert (of_day(DAY).drill.id, of_day(DAY).seed) == (its.drill.id, its.seed) and its.day == "2026-03-01"
    assert its.drill.id in file.catalogue() and seed_of(its.seed) == its.seed
    month = [of_day(DAY + timedelta(days=k)) for k in range(30)]
    assert len({one.seed for one in month}) == 30 and len({one.drill.id for one in month}) > 10
    assert is_daily(its.day, its.drill.id, its.seed)
    assert not is_daily("2026-03-02", its.drill.id, its.seed) and not is_daily("today", its.drill.id, its.seed)


def log_of(folder: Path, name: str, player: str, seed: str, seed_by: str) -> None:
    case = Case.of(file.loads(TEXT, "d.yaml"), seed, healthy=False)
    game = Game.start(case, player=player, seed_by=seed_by, up=FakeWorld)  # type: ignore[arg-type]
    game.command(f"submit {' '.join(map(str, game.stage.drawn.truth))}")
    game.log().write(folder / f"{name}.log")


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


def test_a_game_of_a_day_is_listed_as_such(tmp_path: Path) -> None:
    its = of_day(DAY)
    log_of(tmp_path, "1", "ada", "7Q4", its.day)
    log = logs.read(tmp_path / "1.log")
    head = {**log.head, "drill": its.drill.id, "seed": its.seed, "text": its.drill.text}
    logs.Log(head, log.entries, log.end).write(tmp_path / "1.log")
    board, _ = ranked(tmp_path, play=False)
    assert [(row["player"], row["seeds"]) for row in board] == [("ada", "daily")]


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
