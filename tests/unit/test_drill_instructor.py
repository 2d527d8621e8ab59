"""The instructor's lines and transcript, without a world."""

from __future__ import annotations

import pytest

from drills import instructor
from drills.game import Game
from drills.instructor import Instructor, Transcript, _injection
from drills.log import LogEntry
from drills.play.drilld import Server
from drills.session import Answer
from drills.sheet import file
from drills.sheet.case import Case
from testbed.base.errors import InputError
from testbed.faults import CATALOGUE, Injection
from testbed.serve.instructor import _described
from tests.parts.fake_world import FakeWorld
from tests.parts.small_game import LOSSY

TEXT = f"{LOSSY}hints: [One., Two.]\nevidence: [Look there.]\nbudget: {{emulated: 2ms, answers: 2, tau: 1ms}}\n"


def game_of(*, healthy: bool = False) -> Game:
    return Game.start(Case.of(file.loads(TEXT, "d.yaml"), "7Q4", healthy), up=FakeWorld)  # type: ignore[arg-type]


def test_a_fault_is_written_as_an_answer_is_with_its_parameters() -> None:
    told = _injection("loss@cable:leaf0-spine0 rate=0.02 for=100us every=1ms").written()
    assert (told["fault"], told["on"], told["rate"]) == ("loss", "cable:leaf0-spine0", 0.02)
    assert (told["for"], told["every"]) == ("100us", "1ms")


def test_the_sample_of_every_class_can_be_sent_as_the_page_shows_it() -> None:
    for name, cls in CATALOGUE.items():
        told = _injection(f"{name}@{cls.example['on']} {_described(cls)['sample']}").written()
        assert told.items() >= Injection.of({"fault": name, **cls.example}).written().items(), name


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("loss rate=0.1", "where does loss strike"),
        ("losss@cable:a-b", "losss"),
        ("loss@cable:a-b 0.1", "'0.1' is no parameter"),
        ("loss@cable:a-b rate=2", "rate"),
    ],
)
def test_what_is_wrong_with_a_fault_is_said(text: str, what: str) -> None:
    with pytest.raises(InputError) as wrong:
        _injection(text)
    assert what in f"{wrong.value.what} {wrong.value.where}"


def test_an_own_hint_takes_none_of_the_drill_away() -> None:
    game = game_of()
    teacher = Instructor(game)
    assert teacher.command("hint look there").ok and teacher.truth()["next_hint"] == "One."
    assert "One." in game.command("hint").text and game.state()["hints_left"] == 1
    assert "Two." in teacher.command("hint").text and "cost 20 points" in game.messages[-1]["text"]
    assert teacher.truth()["next_hint"] is None and not game.command("hint").ok
    assert game.state()["hints_taken"] == 3


def test_a_fault_that_is_put_in_later_says_when_and_a_healthy_world_has_no_way_to_the_truth() -> None:
    game = game_of(healthy=True)
    teacher = Instructor(game)
    assert teacher.truth()["evidence"] == []
    assert game.command("advance 100us").ok
    assert teacher.command("inject long_cable@cable:leaf0-spine0 delay=3us at=50us").ok
    (told,) = teacher.truth()["faults"]
    assert (told["fault"], told["at"]) == ("long_cable", "850us")
    assert game.stage.later[0][1].at == 50_000, "its own time counts from when it was put in"
    assert teacher.truth()["evidence"] == []


def test_a_look_that_is_repeated_at_one_hold_stands_there_once() -> None:
    transcript = Transcript()
    looked = Answer(True, 100, "table")
    for line in ("show job", "show pfc", "show job", "hint", "hint"):
        transcript.add(line, 100, looked)
    transcript.add("advance 10us", 100, Answer(True, 110, "steps"))
    transcript.add("show job", 110, Answer(True, 110, "table"))
    number, rows = transcript.since(0)
    assert [row["line"] for row in rows] == ["show job", "show pfc", "hint", "hint", "advance 10us", "show job"]
    assert transcript.since(number) == (6, []) and len(transcript.since(4)[1]) == 2


def test_an_old_transcript_forgets_its_beginning_and_keeps_its_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(instructor, "MOST_KEPT", 3)
    transcript = Transcript()
    for k in range(5):
        transcript.add(f"hint {k}", 0, Answer(True, 0))
    assert [row["line"] for row in transcript.since(0)[1]] == ["hint 2", "hint 3", "hint 4"]
    assert [row["line"] for row in transcript.since(4)[1]] == ["hint 4"]


def test_what_a_page_looks_at_by_itself_is_not_in_the_transcript() -> None:
    class Game:
        time_ns, gone, over = 100, False, False

        def __init__(self) -> None:
            self.entries: list[LogEntry] = []

        def command(self, line: str, page: bool = False) -> Answer:
            acts = line.startswith("advance")
            self.entries.append(LogEntry(1, line, 100, 0, True, acts, "", "page" if page and not acts else ""))
            return Answer(True, 100, "said")

    server = Server.__new__(Server)
    server.game, server.transcript = Game(), Transcript()  # type: ignore[assignment]
    for line, page in (("show job", True), ("show pfc", False), ("advance 1us", True)):
        server._command(line, page)
    assert [row["line"] for row in server.transcript.since(0)[1]] == ["show pfc", "advance 1us"]
