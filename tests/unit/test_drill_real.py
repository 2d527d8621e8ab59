"""Drills on the real clock, on a world without a fabric: what counts, what is measured, what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from drills import log as logs
from drills.agents.bench import check_measurable
from drills.check.check import Checked
from drills.check.real import RealGame, shows
from drills.game import Game
from drills.instructor import Instructor, Transcript
from drills.log import LogEntry
from drills.measured import RealEnding, ending_of_real
from drills.play.drilld import Server
from drills.play.ranking import ranked
from drills.play.wire import SOCKET
from drills.replay import replayed
from drills.sheet import file
from drills.sheet.answer import parse
from drills.sheet.case import Case
from drills.stage import Stage
from hardware.client import FabricdError
from results.figures.fidelity import Fidelity, real_clock
from testbed.base.errors import InputError
from testbed.commands import drill
from testbed.containers import cpu
from tests.parts.fake_world import FAULTY_NS, HEALTHY_NS, FakeWorld

TEXT = """
title: Steps take longer
level: easy
clock: {real: {dilation: 100000}}
fabric: {topology: {clos: {leaves: 2, spines: 2, hosts_per_leaf: 2}}}
job: {collective: all_reduce, algorithm: ring, size: 64KiB}
draw: {bad: {any: cable, between: [leaf, spine], carries: job}}
faults: [{fault: loss, on: $bad, rate: 0.02}]
question: [healthy, where, what, fix]
hints: [One., Two.]
evidence: [Look there.]
budget: {emulated: 2ms, answers: 2}
slo: {step: 1.2}
"""
HOP_NS, DILATION = 583.6, 100_000  # 400 Gb/s, a frame of 4096 bytes, 500 ns


def late(p99_ns: float) -> Fidelity:
    """The verdict by rules of results/figures/fidelity.py, of events that ran so late."""
    return real_clock({"lateness_ns": {"p99": p99_ns}}, smallest_hop_ns=HOP_NS, dilation=DILATION, steal=0.0)


class GoingWorld(FakeWorld):
    """A world that says how well it has kept time."""

    verdict = late(100_000)

    def heed(self) -> None:
        pass

    def fidelity(self) -> Fidelity:
        return self.verdict


class LateWorld(GoingWorld):
    verdict = late(1_000_000)


def game_of(up: Any = GoingWorld, *, healthy: bool = False, text: str = TEXT) -> Game:
    return Game.start(Case.of(file.loads(text, "d.yaml"), "7Q4", healthy), up=up)


def truth(game: Game) -> str:
    return " ".join(map(str, game.stage.drawn.truth))


def test_times_of_the_file_count_from_the_jobs_first_step() -> None:
    game = game_of()
    assert game.stage.zero_ns == HEALTHY_NS and game.time_ns == HEALTHY_NS + 700_000
    (fault_ns,) = game.stage.world.faults.values()  # type: ignore[attr-defined]
    assert fault_ns == HEALTHY_NS + 300_000
    assert game.stage.healthy_step_ns == HEALTHY_NS
    assert game.ticket()["clock"] == "real" and "goes on while you think" in game.ticket_text()


def test_a_game_counts_if_the_machine_has_kept_time() -> None:
    game = game_of()
    text = game.command(f"submit {truth(game)}").text
    assert "fidelity good" in text and "SCORE 80.0" in text  # all but the mending
    told = game.ending.to_dict()  # type: ignore[union-attr]
    assert told["environment_invalid"] is False and told["score"]["total"] == 80.0
    assert told["steps_ns"] == {"healthy": HEALTHY_NS, "before": FAULTY_NS, "now": FAULTY_NS}
    assert game.state()["score"]["total"] == 80.0


@pytest.mark.parametrize("answer", ["right", "wrong", "none"])
def test_otherwise_its_environment_was_invalid_and_there_is_no_score(answer: str) -> None:
    game = game_of(LateWorld)
    line = {"right": f"submit {truth(game)}", "wrong": "submit healthy", "none": "give-up"}[answer]
    game.command(line)
    text = game.command(line).text if not game.over else ""
    assert game.over and isinstance(game.ending, RealEnding) and game.ending.score is None
    assert "SCORE" not in game.ending.text + text and game.ending.text.startswith("environment_invalid")
    # 1 ms of a hop of 58.36 ms is 1.71 %: above 1 % it is doubtful
    assert "1.71% of the smallest hop" in game.ending.text and "to change it: use clock" in game.ending.text
    told = game.ending.to_dict()
    assert told["environment_invalid"] is True and told["score"] is None and told["fidelity"]["verdict"] == "doubtful"
    assert game.state()["score"] is None and game.state()["environment_invalid"] is True
    assert "environment_invalid" in game.command("report").text


def test_only_good_is_good_enough() -> None:
    verdicts = [late(p99_ns).verdict for p99_ns in (583_000, 584_000, 2_917_000, 2_919_000)]
    assert verdicts == ["good", "doubtful", "doubtful", "invalid"]


def ended(*, mend: bool, acted: bool = True, healthy_steps: bool = False) -> RealEnding:
    """The end of a game in which the cause was taken away, or was not, or had cost nothing."""
    text = TEXT.replace("slo: {step: 1.2}", "slo: {step: 2}") if healthy_steps else TEXT
    stage = Stage.up(Case.of(file.loads(text, "d.yaml"), "7Q4", False), GoingWorld)  # type: ignore[arg-type]
    entry = LogEntry(1, "config cable replace leaf0-spine0", stage.world.time_ns, 0, True, True)
    if mend:
        stage.mend()
    stage.world.advance(200_000)
    answer = parse(" ".join(map(str, stage.drawn.truth)), stage.world.fabric)
    return ending_of_real(stage, answer, [entry] if acted else [], hints=1, wrong=0)


def test_mended_is_what_a_measurement_confirms() -> None:
    healed, left, cheap = ended(mend=True), ended(mend=False), ended(mend=False, healthy_steps=True)
    assert healed.score and left.score and cheap.score
    assert (healed.score.fixed, healed.steps_ns["now"]) == (1.0, HEALTHY_NS)
    assert (left.score.fixed, left.steps_ns["now"]) == (0.0, FAULTY_NS)
    assert cheap.score.fixed is None  # within what the job is promised: its weight goes to where and what
    # 100 and 80 and 100, less 5 for the hint; nothing for time, nothing for damage
    assert [one.score.total for one in (healed, left, cheap) if one.score] == [95.0, 75.0, 95.0]
    assert healed.score.damage == 0.0 and healed.score.speed == 1.0


class SparingWorld(GoingWorld):
    """Its fault strikes now and then: from the moment of the answer it spares some steps by chance."""

    spared = 7

    def spare(self) -> None:
        self.told.append("spared")
        self.kept, self.faults = self.faults, {}

    def advance(self, ns: int) -> None:
        super().advance(ns)
        if "spared" in self.told and self.faults == {} and self._clean() >= self.spared:
            self.faults = self.kept

    def _clean(self) -> int:
        times = [step.end_ns - step.start_ns for step in self.steps]
        return next((k for k, took in enumerate(reversed(times)) if took != HEALTHY_NS), len(times))


def test_steps_that_the_fault_spares_by_chance_do_not_mend() -> None:
    stage = Stage.up(Case.of(file.loads(TEXT, "d.yaml"), "7Q4", False), SparingWorld)  # type: ignore[arg-type]
    world: Any = stage.world
    stage.world.advance(300_000)
    answer = parse(" ".join(map(str, stage.drawn.truth)), stage.world.fabric)
    config = LogEntry(1, "config port shutdown leaf0-spine0", stage.world.time_ns, 0, True, True)
    refused = LogEntry(1, "config port shutdown leaf0-spine0", stage.world.time_ns, 0, False, True)
    world.spare()
    world.spared = 100
    # so lucky is nobody; but who has changed nothing, or could not, has mended nothing
    for touched in ([], [refused]):
        ending = ending_of_real(stage, answer, touched, hints=0, wrong=0)
        assert ending.score and (ending.score.fixed, ending.steps_ns["now"]) == (0.0, HEALTHY_NS)
    ending = ending_of_real(stage, answer, [config], hints=0, wrong=0)
    assert ending.score and ending.score.fixed == 1.0


@pytest.mark.parametrize(("spared", "fixed"), [(3, 0.0), (7, 0.0)])
def test_a_few_quick_steps_are_no_repair(spared: int, fixed: float) -> None:
    text = TEXT.replace("slo: {step: 1.2}", "slo: {step: 1.05}")  # one of eight that is not: 1.0625
    stage = Stage.up(Case.of(file.loads(text, "d.yaml"), "7Q4", False), SparingWorld)  # type: ignore[arg-type]
    world: Any = stage.world
    stage.world.advance(300_000)
    answer = parse(" ".join(map(str, stage.drawn.truth)), stage.world.fabric)
    config = LogEntry(1, "config port shutdown leaf0-spine0", stage.world.time_ns, 0, True, True)
    world.spare()
    world.spared = spared
    ending = ending_of_real(stage, answer, [config], hints=0, wrong=0)
    assert ending.score and ending.score.fixed == fixed


class LostWorld(GoingWorld):
    def counters(self) -> dict[str, Any]:
        if self.time_ns > 3_000_000:
            raise FabricdError("fabricd is gone")
        return super().counters()

    def fidelity(self) -> Fidelity:
        self.counters()
        return self.verdict


def test_a_world_that_is_gone_when_the_budget_is_ends_the_game() -> None:
    game = game_of(LostWorld)
    game.stage.world.time_ns = 4_000_000  # type: ignore[misc]
    answer = game.command("status")
    assert not answer.ok and "the world has died: fabricd is gone" in answer.text
    assert game.gone and not game.over


def served(tmp_path: Path, world: type[GoingWorld] = GoingWorld) -> Server:
    """A server of a game whose budget goes while nobody types."""
    game = game_of(world)
    server = Server.__new__(Server)
    server.game, server.out, server.shown = game, tmp_path / "game.log", "game.log"
    server.dir, server.transcript = tmp_path, Transcript()
    server._key = None
    server.written = server.reported = server.ended = False
    (tmp_path / SOCKET).touch()
    return server


def test_who_types_nothing_until_the_end_is_told_it_with_his_next_line(tmp_path: Path) -> None:
    server = served(tmp_path)
    assert server._there() and not server.game.over
    server.game.stage.world.advance(3_000_000)
    assert server._there() and server.game.over and server.out.exists()
    (row,) = server.transcript.since(0)[1]
    assert (row["line"], row["ok"]) == ("the budget is gone", True) and "SCORE 0.0" in row["text"]
    told = server._command("show job", False)
    assert told["ok"] and "SCORE 0.0" in told["text"] and "how it went: testbed drill report game.log" in told["text"]
    assert told["log"] == str(server.out) and told["data"]["score"]["total"] == 0.0
    later = server._command("show job", False)
    assert not later["ok"] and "log" not in later


def test_a_server_ends_when_the_world_does_at_the_end_of_the_budget(tmp_path: Path) -> None:
    server = served(tmp_path, LostWorld)
    server.game.stage.world.time_ns = 4_000_000  # type: ignore[misc]
    assert not server._there() and server.game.gone and not server.out.exists()


def test_an_instructor_cannot_pause_it() -> None:
    game = game_of()
    answer = Instructor(game).command("pause")
    assert not answer.ok and "the real clock goes on" in answer.text and not game.paused


def test_the_budget_goes_while_nothing_is_typed() -> None:
    game = game_of()
    game.stage.world.advance(3_000_000)
    assert not game.over
    answer = game.command("show job")
    assert game.over and answer.ok and "SCORE 0.0" in answer.text
    assert answer.data["score"]["total"] == 0.0 and answer.data["environment_invalid"] is False


def test_what_needs_another_such_world_is_refused(tmp_path: Path) -> None:
    game = game_of()
    game.command(f"submit {truth(game)}")
    path = tmp_path / "game.log"
    game.log().write(path)
    again = replayed(path, up=GoingWorld)  # type: ignore[arg-type]
    assert "never goes the same way twice" in again.differs and again.score is None
    for play in (True, False):
        board, refused = ranked(tmp_path, play=play, up=GoingWorld)  # type: ignore[arg-type]
        assert board == [] and "never goes the same way twice" in refused["game.log"]
    with pytest.raises(InputError, match="no two agents would get the same world"):
        check_measurable([game.case.drill])


def test_a_head_that_hides_the_clock_helps_nobody(tmp_path: Path) -> None:
    game = game_of()
    game.command(f"submit {truth(game)}")
    log = game.log()
    head = {key: value for key, value in log.head.items() if key != logs.REAL}
    path = tmp_path / "game.log"
    logs.Log(head, log.entries, log.end).write(path)
    assert "never goes the same way twice" in replayed(path, up=GoingWorld).differs  # type: ignore[arg-type]


def refused(text: str) -> str:
    with pytest.raises(InputError) as error:
        Case.of(file.loads(text, "d.yaml"), "7Q4", False)
    return f"{error.value.where}: {error.value.what} ({error.value.hint})"


def test_mistakes_of_clocks() -> None:
    assert "d.yaml:4: clock.real.slow: unknown key 'slow'" in refused(TEXT.replace("dilation", "slow"))
    quota = TEXT.replace("clock: {real: {dilation: 100000}}\n", "").replace(
        "{fault: loss, on: $bad, rate: 0.02}", '{fault: cpu_quota, on: "nic:1", cpus: 0.05}'
    )
    assert "cpu_quota is for the real clock (clock: {real:" in refused(quota)


def test_what_shows_is_what_stays_zero_in_the_healthy_world() -> None:
    def seen(crc: int, sent: int, throttled: int) -> dict[str, Any]:
        ports = [{"IFACE": "leaf0:1", "RX_CRC": 0, "TX": sent}, {"IFACE": "leaf0:2", "RX_CRC": crc, "TX": sent}]
        return {"interfaces errors": {"ports": ports}, "cpu": {"cpu": [{"rank": 0, "nr_throttled": throttled}]}}

    well = RealGame("healthy", seen=seen(0, 17, 0), steps_ns=[10.0] * 8, slo=1.5)
    assert shows(RealGame("", seen=seen(0, 99, 0), steps_ns=[14.0] * 6, slo=1.5), well) == ()
    assert shows(RealGame("", seen=seen(3, 99, 2), steps_ns=[14.0] * 6, slo=1.5), well) == (
        "cpu.nr_throttled", "interfaces errors.RX_CRC",
    )  # fmt: skip
    assert shows(RealGame("", seen=seen(0, 99, 0), steps_ns=[16.0] * 6, slo=1.5), well) == ("job",)
    assert shows(RealGame("", seen=seen(0, 99, 0), steps_ns=[10.0], slo=1.5), well) == ("job",)


@pytest.mark.parametrize(
    "files", [{"cpu.stat": "nr_periods 12\nnr_throttled 5\nthrottled_time 460000000\n", "cpuacct.usage": "9000\n"},
              {"cpu.stat": "usage_usec 9\nnr_periods 12\nnr_throttled 5\nthrottled_usec 460000\n"}],
    ids=["cgroup 1", "cgroup 2"],
)  # fmt: skip
def test_both_control_groups_tell_of_throttling(
    files: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    monkeypatch.setattr(cpu, "control_group_paths", lambda name: iter([tmp_path, tmp_path / "none"]))
    monkeypatch.setattr(cpu, "in_control_groups", lambda name: set())
    assert cpu.cpu_of("any") == cpu.Cpu(12, 5, 460_000_000, 9_000, 0)  # no task is left


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (["serve", "host/throttled", "--web"], "the page is for a world that stands still"),
        (["bench", "--agent", "baseline:healthy", "--suite", "host/throttled"], "would get the same world"),
    ],
)
def test_what_a_page_and_a_benchmark_say_of_it(words: list[str], what: str) -> None:
    error = CliRunner().invoke(drill.command, words).exception
    assert isinstance(error, InputError) and what in error.what and error.hint


def test_the_endings_are_plain_data() -> None:
    game = game_of(LateWorld)
    game.command("give-up")
    assert json.loads(json.dumps(game.log().end))["report"]["fidelity"]["verdict"] == "doubtful"


@pytest.mark.parametrize(
    ("wrong", "unfit", "verdict"),
    [([], False, "ok"), (["late"], True, "not fit"), (["late", "no place"], True, "FAILS"), (["x"], False, "FAILS")],
)
def test_a_check_on_a_machine_that_was_not_fit_says_so(wrong: list[str], unfit: bool, verdict: str) -> None:
    found = Checked("d", "7Q4", wrong=wrong, unfit=unfit)
    assert (found.verdict, found.passes) == (verdict, not wrong)
