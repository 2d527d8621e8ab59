"""What a world makes of its workers' lines, of conditions, and of steps that are shown together."""

from __future__ import annotations

import json
import signal
import socket
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from testbed.base.errors import InputError
from testbed.live.look.steps import RankStep, Step
from testbed.live.views.job import folded, gone, slowest, under_way
from testbed.machine.jsonlines import JsonLines
from testbed.world import keeper
from testbed.world.base import AnyWorld
from testbed.world.condition import parse
from testbed.world.history import History
from testbed.world.steps import Collected
from workloads.passes import covered


def line(number: int, rank: int, **more: Any) -> bytes:
    told = {"kind": "pass", "rank": rank, "pass": number, "start_ns": 100.0 * number, "end_ns": 100.0 * number + 80}
    return json.dumps({**told, "host_ns": 10.0, "compute_ns": 30.0, "wrong": 0, "fallback": "", **more}).encode()


def step(number: int, time_ns: float, wrong: int = 0, busy: tuple[float, ...] = (10, 10, 10)) -> Step:
    ranks = {r: RankStep(b, time_ns - b, wrong, 0.0, time_ns) for r, b in enumerate(busy)}
    return Step(number, 0.0, time_ns, ranks)


def test_a_bug_in_a_keeper_looks_like_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It is no bad input: exit code 1, and the evidence is kept."""
    world: Any = SimpleNamespace(steps=[1, 2], events=None, lab=SimpleNamespace(dir=tmp_path))
    client: Any = None
    for call, why in (("steps", "TypeError"), ("events", "TypeError"), ("history", "AttributeError")):
        asked = json.dumps({"call": call, "since": "x"}).encode()
        told = keeper._told_of(world, client, asked)["error"]
        assert told["exit_code"] == 1 and told["what"].startswith(f"internal error: {why}: "), told
        assert told["where"] == str(tmp_path / "keeper.log")
    assert capsys.readouterr().err.count("Traceback") == 3
    for line in (b"{", b"[]", b'{"call": "fly"}', b'{"call": ["steps"]}'):
        assert keeper._told_of(world, client, line)["error"]["exit_code"] == 2


class Going(AnyWorld):
    """A world in which nothing happens; after a while, whoever has asked goes."""

    def __init__(self, asker: socket.socket) -> None:
        self.now, self.asker = 0, asker
        self.job: Any = SimpleNamespace(steps=[])

    @property
    def time_ns(self) -> int:
        return self.now

    @property
    def steps(self) -> list[Step]:
        return []

    @classmethod
    def _begin(cls, *_: object) -> Any: ...

    def advance(self, ns: int) -> None: ...

    def settle(self) -> None: ...

    def request(self, op: str, **arguments: Any) -> Any: ...

    def _now(self) -> int:
        return self.now

    def _towards(self, left_ns: int) -> None:
        self.now += 1000
        if self.now == 5000:
            self.asker.close()


@pytest.mark.parametrize("call", [{"call": "advance_steps", "count": 1}, {"call": "until", "condition": "time > 9ms"}])
def test_what_nobody_waits_for_any_more_is_not_gone_on_with(call: dict[str, Any]) -> None:
    """A command that was ended by Ctrl-C would hold up all that come after it."""
    near, far = socket.socketpair()
    with near:
        world: Any = Going(far)
        told = keeper._told_of(world, JsonLines(near), json.dumps({**call, "limit_ns": 1_000_000}).encode())
        assert (told["value"], world.now) == (False, 5000)


class World:
    """As far as a condition looks at one."""

    def __init__(self, *times: float) -> None:
        self.time_ns, self.steps, self.drops = 0, [step(k, ns) for k, ns in enumerate(times)], 0

    @property
    def best_ns(self) -> float | None:
        return min((s.time_ns for s in self.steps), default=None)

    def counters(self) -> dict[str, Any]:
        return {"drops": [{"count": self.drops}]}


def test_a_step_is_there_when_all_its_ranks_have_told_of_it() -> None:
    said = Collected([0, 1])
    said.take([0, 1], line(0, 1))
    said.take([0], line(0, 0))
    said.take([0], line(1, 0, end_ns=200, start_ns=120))
    (first,) = said.steps
    assert (first.start_ns, first.end_ns, first.ranks[0].wait_ns, said.best_ns) == (0, 80, 40, 80)
    said.take([1], line(1, 1, wrong=3, fallback="no slots"))
    assert (said.steps[1].wrong, said.steps[1].end_ns, said.steps[1].last) == (3, 200, 0)
    assert Step.from_dict(json.loads(json.dumps(said.steps[1].to_dict()))) == said.steps[1]


@pytest.mark.parametrize(
    "text",
    [
        *(b"hello \x1b[2J", b"[]", b'{"kind": "pass"}', b'{"kind": 3}', b"\xff", b"[" * 100_000),
        *(line(1, 0), line(0, 1), line(-1, 0), line(0, 0, end_ns=-1), line(0, 0, host_ns=1e300)),
        *(line(0, 0, host_ns=float("nan")), line(0, 0, wrong=1.5), line(0, 0, wrong=True), line(0, 0, wrong="many")),
    ],
)
def test_what_a_worker_may_not_say_is_text_and_changes_nothing(text: bytes) -> None:
    said = Collected([0])
    kept = said.take([0], text)
    assert (said.steps, said.errors, "\x1b" in kept) == ([], {}, False)
    said.take([0], line(0, 0))
    assert len(said.steps) == 1


def test_of_a_worker_that_gives_up_it_is_kept_why() -> None:
    said = Collected([0, 1])
    said.take([1], b'{"kind": "error", "what": "retries \\u001b[31m exceeded"}')
    assert "\x1b" not in said.errors[1]
    assert "exceeded" in said.errors[1]


def test_conditions_of_steps_look_at_those_that_end_from_now_on() -> None:
    world = World(100, 500)
    met = parse("step > 1.2x").watched(world)
    assert not met(world)
    world.steps.append(step(2, 119))
    assert not met(world)
    world.steps += [step(3, 121), step(4, 100)]
    assert met(world)
    assert not met(world)
    slow = parse("step >= 50us").watched(world)
    world.steps.append(step(5, 50_000))
    assert slow(world)


def test_conditions_of_counters_count_from_now_on() -> None:
    world = World()
    world.drops = 7
    met = parse("drops > 1").watched(world)
    world.drops = 8
    assert not met(world)
    world.drops = 9
    assert met(world)


def test_a_condition_of_time() -> None:
    world = World()
    met = parse("time>2us").watched(world)
    world.time_ns = 2000
    assert not met(world)
    world.time_ns = 2001
    assert met(world)


@pytest.mark.parametrize(
    "text", ["", "step", "step > ", "step > 2", "step ~ 2x", "luck > 2", "drops > 2x", "time > 2x"]
)
def test_a_condition_that_does_not_parse_says_what_is_allowed(text: str) -> None:
    with pytest.raises(InputError) as caught:
        parse(text)
    assert caught.value.hint


def test_steps_that_are_alike_are_shown_as_one() -> None:
    steps = [
        step(0, 100),
        step(1, 100.5),
        step(2, 120),
        step(3, 120, wrong=1),
        step(4, 100),
        step(5, 100, 0, (10, 20, 10)),
    ]
    assert [[s.number for s in group] for group in folded(steps)] == [[0, 1], [2], [3], [4], [5]]
    assert [slowest(s) for s in steps] == [None] * 5 + [1]


def test_history_is_a_sequence_of_moments() -> None:
    history = History()
    for k in range(5):
        history.add(50 * k, {"time_ns": 50 * k})
    assert [t for t, _ in history] == [0, 50, 100, 150, 200]
    assert history[-1] == (200, {"time_ns": 200})
    with pytest.raises(IndexError):
        history[5]
    assert history[1:3] == [(50, {"time_ns": 50}), (100, {"time_ns": 100})]


def test_time_that_several_spans_cover_counts_once() -> None:
    assert covered([]) == 0
    assert covered([(5, 7), (0, 3), (2, 4), (2, 3), (7, 8)]) == 7


def test_a_job_that_stands_says_so_though_its_steps_were_quick() -> None:
    steps = [step(k, ns) for k, ns in enumerate((900.0, *[100.0] * 4, 120.0))]
    assert steps[-1].end_ns == 120.0
    assert under_way([], 5000.0) == under_way(steps[1:], 120.0 + 180.0) == ""
    assert under_way(steps[1:], 5120.0) == "step 6 has been under way for 5 us (show job --now)"


def test_ranks_that_are_no_more_are_named() -> None:
    workers = [{"rank": rank, "state": state} for rank, state in enumerate(("waiting", "lost", "done", "lost"))]
    assert [gone(workers), gone(workers[:2]), gone(workers[:1])] == ["ranks 1, 3 are gone", "rank 1 is gone", ""]


def test_a_keeper_ends_though_what_its_signal_raised_got_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python swallows it inside a destructor."""
    ending: list[int] = []

    class Thing:
        def __del__(self) -> None:
            keeper._end(ending, signal.SIGTERM, None)

    unraisable: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", unraisable.append)
    Thing()
    assert len(unraisable) == 1
    with pytest.raises(SystemExit):
        keeper._serve(None, None, ending)  # type: ignore[arg-type]
