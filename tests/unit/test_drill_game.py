"""A game on a world without a fabric: what each line does, and the end."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from drills.game import Game
from drills.own import HELP_WIDE
from drills.play import prompt
from drills.proof.seal import Seal, commitment, opened
from drills.replay import _may_be_played, replayed
from drills.report import as_markdown
from drills.sheet import file
from drills.sheet.answer import fits
from drills.sheet.case import Case
from drills.stage import Stage
from testbed.base.errors import InputError, UserError
from testbed.live.look.look import Look, Sight
from testbed.live.views.ports import called, drops
from tests.parts.fake_world import FakeWorld
from tests.parts.small_game import TEXT, game_of, truth


def refused(game: Game, line: str) -> str:
    answer = game.command(line)
    assert not answer.ok and answer.error and answer.error["what"] in answer.text
    return answer.text


def test_help_fits_a_terminal() -> None:
    game = game_of()
    usages = game.command("help").data["commands"]  # type: ignore[index]
    for line in ("help", "help config", "help show", "help probe lat"):
        rows = game.command(line).text.splitlines()
        assert all(len(row) <= HELP_WIDE or row.strip() in usages for row in rows), line
    assert re.search(r"capture PLACE .*]\n +Capture what", game.command("help").text)
    told = " ".join(game.command("help").text.split())
    assert "interfaces counters, interfaces counters trim, interfaces errors" in told, (
        "nothing is lost where lines break"
    )


def test_the_ticket_tells_of_the_world() -> None:
    told = game_of().ticket()
    assert told["world"].startswith("clos leaves=2 spines=2 hosts_per_leaf=4, 8 ranks, collective all_reduce")
    assert told["world"] in game_of().ticket_text()


def test_the_player_gets_the_world_after_its_healthy_history() -> None:
    game = game_of()
    assert game.time_ns == game.stage.began_ns == 700_000 and game.stage.healthy_step_ns == 40_000
    world = game.stage.world
    # places are drawn after the first step; the fault begins when the warm-up ends
    assert world.told == ["40000 noisy_neighbour all", f"40000 loss {game.stage.drawn.places['bad']}"]
    assert world.faults == {"w2": 300_000}
    game.close()
    game.close()
    assert world.closed


def test_a_healthy_case_has_the_herrings_and_no_fault() -> None:
    game = game_of(healthy=True)
    assert game.stage.world.told == ["40000 noisy_neighbour all"] and truth(game) == ""
    assert "SCORE 100.0" in game.command("submit healthy").text


def test_time_passes_only_by_what_is_typed() -> None:
    game = game_of()
    for line in (
        "show interfaces counters",
        "status",
        "ticket",
        "help",
        "classes",
        "actions",
        "help show",
        "help advance",
    ):
        assert game.command(line).ok, line
    assert game.time_ns == 700_000
    assert game.command("advance 60us").data == {"time_ns": 760_000, "steps_ns": [60_000]}
    assert game.command("advance 2 steps").data["steps_ns"] == [60_000, 60_000]
    assert len(game.entries) == 10 and [e.acts for e in game.entries[-2:]] == [True, True]


def test_of_many_steps_the_newest_are_told() -> None:
    """From 700 us, in the seventh step of 60 us after the seventh healthy one, to 2 ms."""
    game = game_of(TEXT.replace("emulated: 2ms", "emulated: 20ms"))
    text = game.command("advance 1300us").text
    times = text.partition(" steps and then ")[2].removesuffix(" us").split()
    steps = [step for step in game.stage.world.steps if step.end_ns > 700_000]
    assert int(text.split()[0]) + len(times) == len(steps) and len(times) == 12
    assert "steps and then" not in game.command("advance 2 steps").text


def test_the_topology_is_told_at_the_prompt() -> None:
    text = game_of().command("topology").text
    assert "\n  h4       h4 (rank 4)\n" in text
    assert (
        "\n  leaf1    leaf    1 h4 (rank 4)  2 h5 (rank 5)  3 h6 (rank 6)  4 h7 (rank 7)  5 spine0:2  6 spine1:2"
        in text
    )


def test_help_of_an_action_says_what_it_does_to_the_job() -> None:
    text = " ".join(game_of().command("help config interface shutdown").text.split())
    assert "takes 50us" in text and "queue pairs that send there fail" in text


def test_an_advance_beyond_the_budget_is_refused_and_changes_nothing() -> None:
    game = game_of()
    game.command("advance 750us")
    assert "1250us are left" in refused(game, "advance 1s")  # of 2 ms
    assert game.time_ns == 1_450_000 and not game.over and not game.entries[-1].acts
    game.ends_ns = 2_700_000  # a log that was written before has such a line: it ends as it did
    assert game.command("advance 1s").ok and game.over and game.entries[-1].took_ns == 1_250_000


def test_a_place_that_a_class_cannot_have_costs_nothing() -> None:
    game = game_of()
    assert "noisy_neighbour is at: all" in refused(game, "submit loss@cable:leaf1-spine1 noisy_neighbour@nic:5")
    assert game.wrong == 0 and not game.over
    assert "incast is at: nic" in refused(game, "submit incast@all")
    port = game.stage.drawn.truth[0].resources[1]
    assert port.startswith("port:")
    assert game.command(f"submit {truth(game).replace(game.stage.drawn.truth[0].place, port)}").ok
    assert game.ending and game.ending.score and game.ending.score.total == 100.0


def test_a_log_with_a_place_that_a_class_cannot_have_goes_as_it_went() -> None:
    game = game_of()
    game.ends_ns = game.time_ns
    assert game.command("submit noisy_neighbour@nic:5").data == {"right": False, "answers_left": 1}


def test_every_name_of_a_place_that_is_right_is_taken() -> None:
    assert fits("miswired", "port:leaf0:4")  # an end of its cable
    assert not fits("incast", "port:leaf0:4") and not fits("noisy_neighbour", "nic:5") and fits("incast", "nic:5")


def test_the_budget_ends_the_drill() -> None:
    game = game_of()
    answer = game.command("advance 2ms")
    assert game.over and "SCORE 0.0" in answer.text and game.ending is not None
    assert game.entries[-1].time_ns == 700_000
    assert game.ending.conduct.t_ns == 2_000_000
    assert "the drill is over" in refused(game, "advance 1us")
    assert game.command("show interfaces counters").ok  # one may still look


def test_answers() -> None:
    game = game_of()
    assert "no place" in refused(game, "submit loss")
    assert "there is no such cable" in refused(game, "submit loss@cable:leaf0-spine9")
    assert game.command("submit incast@nic:1").data == {"right": False, "answers_left": 1}
    answer = game.command(f"submit {truth(game)}")
    assert answer.ok and game.over
    # 100 - 10 for the wrong one
    assert answer.data["score"]["total"] == 90.0 and answer.data["truth"] == truth(game)


def test_the_last_answer_ends_it_right_or_not() -> None:
    game = game_of()
    game.command("advance 200us")
    game.command("submit incast@nic:1")
    answer = game.command("submit incast@nic:2")
    assert game.over and answer.data["score"]["total"] == 0.0  # 10 for what was seen, less 10


def test_hints_cost_and_come_to_an_end() -> None:
    game = game_of()
    assert game.command("hint").text.startswith("One.") and game.command("hint").data == {"hint": "Two."}
    assert "no more hints" in refused(game, "hint")
    assert game.command(f"submit {truth(game)}").data["score"]["total"] == 90.0
    assert [e.ok for e in game.entries] == [True, True, False, True]


def test_lines_that_are_none() -> None:
    game = game_of()
    assert "which command?" in refused(game, "")
    assert "there is no 'sohw'" in refused(game, "sohw")
    assert "is not a whole command" in refused(game, "show interfaces")
    assert "no number of steps" in refused(game, "advance x steps")
    assert "'5' has no unit" in refused(game, "advance 5")
    assert "no closing quotation" in refused(game, "advance '5")
    assert "drill is not over" in refused(game, "report")


def test_a_player_gets_no_files_of_this_machine() -> None:
    game = game_of()
    assert "there is no option --output" in refused(game, "capture leaf0:1 --output /tmp/x")
    assert {"show job", "probe lat", "capture", "config interface shutdown", "config rollback"} <= game.lines.keys()
    assert not [words for words in game.lines if "fault" in words]


def test_a_mistake_of_ours_is_no_end_of_a_game(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> None:
    game = game_of(exam=True)

    def broken(*_: object) -> None:
        raise RecursionError

    monkeypatch.setattr(Game, "show", broken)
    assert "RecursionError" in refused(game, "show interfaces counters") and not game.over and not game.gone
    assert "in broken" in capsys.readouterr().err
    assert game.command("advance 1us").ok


def test_a_line_that_fails_half_way_is_played_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def halfway(game: Game, words: list[str]) -> None:
        if words[0] == "rollback":
            game.stage.world.take_out("w2")
        raise UserError("it went half the way")

    monkeypatch.setattr(Game, "configure", halfway)
    game = game_of()
    refused(game, "config interface shutdown leaf0:1")
    refused(game, "config rollback all")
    assert [(e.ok, e.acts) for e in game.entries] == [(False, False), (False, True)]
    game.command("advance 100us")
    game.command("give-up")
    game.log().write(tmp_path / "game.log")
    assert replayed(tmp_path / "game.log", FakeWorld).differs == ""  # type: ignore[arg-type]


def test_a_tool_ends_with_the_budget_and_where_it_was_stopped(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from testbed.live.tools.site import Site
    from testbed.live.tools.tool import Tool

    def run(tool: Tool, on: FakeWorld, stop: Callable[[], bool], **_: object) -> list:
        site = Site.__new__(Site)
        site._world, site._stop = on, stop  # type: ignore[assignment]
        site.pass_(1e9)
        return []

    monkeypatch.setattr(Tool, "run", run)
    game = game_of()
    game.interrupted = lambda: game.time_ns >= 800_000
    assert game.command("capture leaf0:1 --for 1s").ok and game.time_ns == 800_000 and not game.over
    game.interrupted = lambda: False
    game.command("capture leaf0:1 --for 1s")
    assert game.over and game.ending and game.ending.conduct.t_ns == 2_000_000
    game.log().write(tmp_path / "game.log")
    assert replayed(tmp_path / "game.log", FakeWorld).differs == ""  # type: ignore[arg-type]


def test_drops_that_do_not_show_cannot_be_waited_for() -> None:
    assert "no drop shows" in refused(game_of(TEXT + "views: {drops: asic}\n"), "until drops > 0")


def test_only_drops_that_show_are_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    game = game_of()
    true = FakeWorld.counters

    def dropping(reason: str) -> Callable[[FakeWorld], dict]:
        row = {"node": "leaf0", "port": 1, "reason": reason, "headers": ""}
        return lambda world: {**true(world), "drops": [{**row, "count": world.time_ns}]}

    monkeypatch.setattr(FakeWorld, "counters", dropping("fault"))
    assert game.command("until drops > 0 --for 20us").data["held"] is False
    monkeypatch.setattr(FakeWorld, "counters", dropping("no_buffer"))
    assert game.command("until drops > 0 --for 20us").data["held"] is True


def test_completion() -> None:
    game = game_of()
    assert game.complete("adv") == ["advance"]
    assert "counters" in game.complete("show interfaces ") and game.complete("show interfaces cou") == ["counters"]
    assert game.complete("submit los") == ["loss@"]
    assert "loss@cable:leaf0-spine0" in game.complete("submit loss@cable:leaf0-")
    assert "healthy" in game.complete("submit ") and "nothing" not in game.complete("")


def test_what_can_be_reached_tells_nothing_of_the_truth() -> None:
    game, healthy = game_of(), game_of(healthy=True)
    place = game.stage.drawn.places["bad"]
    for one in (game, healthy):
        told = json.dumps([one.ticket(), {k: v for k, v in one.state().items() if k != "topology"}])
        assert place not in told and "loss" not in told
    assert [k for k in game.ticket() if k != "sealed"] == [k for k in healthy.ticket() if k != "sealed"]
    exam = game_of(exam=True)
    assert exam.ticket()["seed"] is None and "7Q4" not in json.dumps(exam.ticket())


def test_the_truth_is_committed_to() -> None:
    game = game_of()
    sealed = game.ticket()["sealed"]
    game.command("give-up")
    head = game.log().head
    assert commitment(head["salt"], game.ending.truth, head["text"]) == sealed == head["sealed"]  # type: ignore[union-attr]
    assert commitment(head["salt"], "healthy", head["text"]) != sealed


def test_a_sealed_box() -> None:
    seal = Seal("loss@nic:1", "drill")
    assert opened(seal.box(), seal.key, seal.commitment) == "loss@nic:1"
    assert b"loss" not in seal.box()
    assert len(seal.box()) == len(Seal("healthy", "drill").box())
    with pytest.raises(ValueError, match="another drill"):
        opened(seal.box()[:-1] + b"x", seal.key, seal.commitment)
    with pytest.raises(ValueError, match="another drill"):
        opened(seal.box(), seal.key, Seal("loss@nic:1", "drill").commitment)


def test_what_is_wrong_with_a_condition_is_said_of_until() -> None:
    game = game_of()
    for line in ("until step >", "until nothing > 1", "until drops > x", "until step > 1 apple"):
        assert refused(game, line).startswith("until: "), line


def test_until_takes_its_limit_wherever_it_stands() -> None:
    game = game_of()
    for line in ("until drops > 0 --for 100us", "until --for 100us drops > 0"):
        began = game.time_ns
        assert game.command(line).data["held"] is False and game.time_ns - began == 100_000


def test_no_history_in_another_users_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    assert prompt._history() == tmp_path / "state/railbed/drill_history"
    monkeypatch.setattr("os.geteuid", lambda: tmp_path.stat().st_uid + 1)
    assert prompt._history() is None


def test_the_report_says_what_it_was_and_what_was_done() -> None:
    game = game_of()
    game.command("show interfaces counters")
    game.command("show interfaces counters")
    game.command("advance 100us")
    game.command(f"submit {truth(game)}")
    text = game.command("report").text
    for said in (truth(game), "1. Look there.", "show interfaces counters (2 times)", "700us: advance 100us", "67%"):
        assert said in text, text
    page = as_markdown(game.report(), "steps.png")
    assert page.startswith("# Drill 7Q4-")
    assert f"\n## Truth\n\n- {truth(game)}\n" in page
    assert "\n- score " in page
    assert "\n## Evidence\n\n- 1. Look there.\n" in page
    assert "looked at" not in page


def test_a_job_that_never_ends_a_step_is_refused_with_its_line() -> None:
    class Stalled(FakeWorld):
        @property
        def steps(self) -> list:
            return []

    with pytest.raises(UserError, match="no step of the job ends") as error:
        Stage.up(Case.of(file.loads(TEXT, "d.yaml"), "7Q4", False), Stalled)  # type: ignore[arg-type]
    assert error.value.where == "d.yaml:5: job"


def test_a_log_starts_no_programs() -> None:
    starts = file.loads(TEXT + "control: {apps: [evil.py]}\n", "d.yaml")
    with pytest.raises(InputError, match="programs of its own"):
        _may_be_played(starts, "a.log")


def test_lines_of_a_page_are_not_the_players() -> None:
    game = game_of()
    game.command("status", True)
    game.command("show interfaces counters")
    game.command("give-up", True)
    assert [e.by for e in game.entries] == ["page", "", ""]
    assert list(game.report()["looked"]) == ["show interfaces counters"]
    assert game.report()["instructed"] == []


def test_old_counters_are_where_views_read_them() -> None:
    old = "{counter: crc, on: 'port:leaf0:1', value: 17}"
    game = game_of(TEXT.replace("load: 0.05}]", f"load: 0.05}}, {old}]"))
    for counters in (game._seen.counters(), game._seen.history()[0][1]):
        assert counters["shown"] == [{"node": "leaf0", "port": 1, "crc": 17}]
        port = next(p for p in counters["ports"] if (p["node"], p["port"]) == ("leaf0", 1))
        look = Look(game._seen, counters, sight=Sight("counters", "true"))
        assert drops(look, port) == {"crc": 17} == called(look, port)
