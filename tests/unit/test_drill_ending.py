"""What a game is worth in the end, in worlds whose steps have gaps between them: speeds count the gaps, all alike."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from drills import twins
from drills.check.players import scored
from drills.ending import Ending, ending_of
from drills.game import Game
from drills.log import LogEntry
from drills.report import as_text
from drills.sheet import file
from drills.sheet.answer import parse
from drills.sheet.case import Case
from drills.twins import progress
from tests.parts.drills import ALL_ASKED, clos
from tests.parts.fake_world import FAULTY_NS, HEALTHY_NS, FakeRank, FakeStep, FakeWorld

GAP_NS = 4_000
NOTHING_DONE = LogEntry(1, "config ecn leaf0 as it was", 100_000, 0, True, True)
TEXT = clos(0.2).replace("warmup: 50us\nbegins: 100us", "warmup: 500us\nbegins: 600us") + ALL_ASKED


def game_of(faulty_ns: int) -> Game:
    up: Callable[[Case], Any] = partial(FakeWorld, faulty_ns=faulty_ns, gap_ns=GAP_NS)
    return Game.start(Case.of(file.loads(TEXT, "d.yaml"), "7Q4", False), up=up)


def ending(faulty_ns: int, *done: LogEntry) -> Ending:
    game = game_of(faulty_ns)
    answer = parse(str(game.stage.drawn.truth[0]), game.fabric)
    return ending_of(game.stage, answer, done, hints=0, wrong=0, up=game._up)


@pytest.mark.parametrize("done", [(), (NOTHING_DONE,)])
def test_where_nothing_was_lost_nothing_is_asked_to_be_mended(done: tuple[LogEntry, ...]) -> None:
    """The same points whether a command that does nothing was typed or not: the fault has cost the job nothing."""
    found = ending(HEALTHY_NS, *done)
    assert found.score is not None
    assert (found.score.fixed, found.score.total) == (None, 100.0)
    assert found.conduct.speed_fault == found.conduct.speed_healthy == found.speed


def test_who_mends_nothing_has_mended_nothing() -> None:
    """Ten steps of 60 us with nine gaps of 4 us between them, against ten of 40 us."""
    found = ending(FAULTY_NS)
    assert found.score is not None and found.score.fixed == 0.0
    assert found.answered == {"answer": found.truth, "truth": found.truth, "score": found.score.to_dict()}
    assert found.conduct.speed_fault == pytest.approx(1e10 / (600_000 + 36_000), rel=1e-12)
    assert found.conduct.speed_healthy == pytest.approx(1e10 / (400_000 + 36_000), rel=1e-12)
    assert found.to_dict()["speed"]["mended"] == found.conduct.speed_healthy


def test_a_game_that_is_given_up_says_what_an_answer_would_have_been_worth() -> None:
    """Of players who only look, many share a game that nobody answers."""
    game = game_of(FAULTY_NS)
    game.command("give-up")
    assert game.ending is not None and game.ending.answered["answer"] is None
    worth = scored(game, str(game.stage.drawn.truth[0]), game.ending.conduct)[1]
    assert (worth.fixed, worth.total) == (0.0, 80.0)


def test_a_lost_step_costs_what_lies_before_it_too() -> None:
    """The ten steps after the first end at 480 us and have begun at 44."""
    game = game_of(FAULTY_NS)
    assert (game.stage.healthy_step_ns, game.stage.healthy_period_ns) == (40_000, 43_600)


def test_a_healthy_job_is_no_slower_than_healthy() -> None:
    game = game_of(HEALTHY_NS)
    assert game.command(f"submit {game.stage.drawn.truth[0]}").ok
    assert "100% of the healthy speed" in as_text(game.report())


def mended_by_hand(at_ns: int, *lines: str) -> Ending:
    """A player takes the fault away then; `lines` he has typed, the last then and each 100 us before the next."""
    game = game_of(FAULTY_NS)
    stage = game.stage
    stage.until_ns(at_ns)
    for name in list(stage.world.faults):
        stage.world.take_out(name)
    stage.until_ns(at_ns + 1_000_000)
    done = [LogEntry(k, line, at_ns - 100_000 * k, 0, True, True) for k, line in enumerate(reversed(lines))][::-1]
    return ending_of(stage, parse(str(stage.drawn.truth[0]), game.fabric), done, hints=0, wrong=0, up=game._up)


def test_who_mends_at_once_is_worth_as_much_as_the_twin_that_is_mended() -> None:
    """The job goes as fast as healthy again, which is what taking the cause away brings: all points for it."""
    found = mended_by_hand(1_000_000, "config interface replace leaf0:1")
    assert found.score is not None and (found.score.fixed, found.score.damage) == (1.0, 0.0)
    healthy = pytest.approx(1e10 / (400_000 + 36_000), rel=1e-12)
    assert found.speed == found.conduct.speed_mended == found.conduct.speed_healthy == healthy
    assert found.conduct.speed_fault == pytest.approx(1e10 / (600_000 + 36_000), rel=1e-12)
    assert found.courses.keys() == {"yours", "nobody's", "mended"}


def test_what_changes_the_world_without_configuring_it_mends_nothing() -> None:
    """Probes are compared with the world without them; there is no twin that was mended when they were sent."""
    assert mended_by_hand(1_000_000, "ping 0 5").courses.keys() == {"yours", "nobody's"}


def test_the_twin_is_mended_when_the_player_configures_first() -> None:
    """Steps of the twin are quick from its first `config` on, and slow before, whatever was probed earlier."""
    found = mended_by_hand(1_000_000, "ping 0 5", "config qos clear", "config interface replace leaf0:1")
    slow = [start for start, took in found.courses["mended"] if took == FAULTY_NS]
    quick = [start for start, took in found.courses["mended"] if took == HEALTHY_NS and start > 600_000]
    assert 900_000 - FAULTY_NS - GAP_NS <= max(slow) < 900_000 <= min(quick)


@pytest.mark.parametrize(("at", "made"), [(0, 0.0), (100, 1.0), (225, 2.0), (275, 2.25), (300, 2.5), (900, 3.0)])
def test_a_step_under_way_counts_by_its_share(at: float, made: float) -> None:
    steps: Any = [FakeStep(k, start, end, {}) for k, (start, end) in enumerate([(0, 100), (100, 200), (250, 350)])]
    assert progress(steps, at) == made


def test_what_an_action_has_cost_the_job_is_said_and_taken_off() -> None:
    """From 1 ms on its steps take twice as long as without him, until he answers at 2 ms.

    A step of 60 us and a gap of 4 us follow each other without him, so that 15.6 steps are made in the meantime.
    """
    game = game_of(FAULTY_NS)
    stage = game.stage
    stage.until_ns(1_000_000)
    stage.world.faulty_ns = 2 * FAULTY_NS  # type: ignore[attr-defined]
    stage.until_ns(2_000_000)
    answer = parse(str(stage.drawn.truth[0]), game.fabric)
    done = [LogEntry(1, "config qos clear", 1_000_000, 0, True, True)]
    found = ending_of(stage, answer, done, hints=1, wrong=1, up=game._up)
    assert found.lost_steps == pytest.approx(1e6 / 64_000 - 1e6 / 124_000, abs=1)
    assert found.conduct.lost_ns == pytest.approx(found.lost_steps * 43_600)
    assert f"({found.lost_steps:.1f} steps lost)" in found.text and "steps lost" not in ending(FAULTY_NS).text
    off = {name: f"{name} -{points:.1f}" for name, points in (("hints", 5.0), ("wrong answers", 10.0))}
    assert all(text in found.text for text in off.values()) and "damage -" in found.text
    assert "hints" not in ending(FAULTY_NS).text


@pytest.mark.parametrize(("mended_ns", "put_in"), [(900_000, False), (1_100_000, True), (1_200_000, True)])
def test_what_was_put_in_meanwhile_is_in_the_twins_that_had_it(mended_ns: int, put_in: bool) -> None:
    """An instructor has put a fault in at 1.1 ms: it is in the world without the player, and in the mended one only if
    that was not mended before.  From then on that is quick."""
    game, worlds = game_of(FAULTY_NS), list[Any]()

    def up(case: Case) -> Any:
        worlds.append(game._up(case))
        return worlds[-1]

    later = [(1_100_000, game.stage.drawn.faults[0])]
    without = twins.without_student(game.case, 2_000_000, up, later)
    assert without.speed == pytest.approx(1e10 / (10 * FAULTY_NS + 9 * GAP_NS))
    mended = twins.mended(game.case, mended_ns, 2_000_000, up, later)
    assert max(start for start, took in mended.courses if took == FAULTY_NS) < mended_ns
    assert [any(line.startswith("1100000 loss") for line in world.told) for world in worlds] == [True, put_in]
    assert all(world.closed for world in worlds)


@pytest.mark.parametrize(("step_ns", "ended"), [(400_000, 3), (10**9, 0)])
def test_for_a_job_that_hardly_goes_on_nobody_waits_for_ever(step_ns: int, ended: int) -> None:
    """Four times ten healthy steps of 40 us, and a timeout of 50 us, in which a step that was under way ends first."""
    game = game_of(step_ns)
    world = game.stage.world
    began = world.time_ns
    found = twins.Course.of(game.stage, began)
    assert world.time_ns == began + 10 * 4 * HEALTHY_NS + 50_000
    assert sum(step.start_ns >= began for step in world.steps) == ended
    assert found.speed == pytest.approx(ended / 1_650_000 * 1e9)


def test_steps_with_wrong_sums_are_none() -> None:
    game = game_of(FAULTY_NS)
    steps = [FakeStep(k, 0, 10, {0: FakeRank(), 1: FakeRank(wrong=k % 2)}) for k in range(10)]
    game.stage.world._all = [  # type: ignore[attr-defined]
        replace(step, start_ns=game.stage.world.time_ns + 100 * k, end_ns=game.stage.world.time_ns + 100 * k + 90)
        for k, step in enumerate(steps)
    ]
    found = twins.Course.of(game.stage, game.stage.world.time_ns)
    assert found.speed == pytest.approx(5 / (900 + 90) * 1e9)
