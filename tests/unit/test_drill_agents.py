"""Drills for programs, on a world without a fabric: requests of all kinds, pages, suites, figures, benchmarks."""

from __future__ import annotations

import json
import os
import random
import shlex
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from drills.agents import bench, figures, jsonl, mcp
from drills.agents.compare import compared
from drills.agents.desk import AgentSession
from drills.agents.pages import KEPT, LIMIT, Pages, dumped
from drills.agents.players import players_of
from drills.agents.tools import BY_NAME, TOOLS
from drills.game import Game
from drills.sheet import file, suite
from drills.sheet.case import Case
from testbed.base.errors import InputError, MachineError
from testbed.world.base import WorldGone
from tests.parts.fake_world import FakeWorld
from tests.parts.small_game import LOSSY

TEXT = f"{LOSSY}budget: {{emulated: 2ms, answers: 2, tau: 1ms}}\n"
AGENT = Path(__file__).parents[1] / "parts" / "scripted_agent.py"


@pytest.fixture
def game() -> Iterator[Game]:
    game = Game.start(Case.of(file.loads(TEXT, "d.yaml"), "7Q4", False), exam=True, up=FakeWorld)  # type: ignore[arg-type]
    yield game
    game.close()


def asked(desk: AgentSession, request: Any) -> dict[str, Any]:
    line = desk.ask(request)
    assert len(line) <= LIMIT and "\n" not in line
    answer: dict[str, Any] = json.loads(line)
    assert "time_ns" in answer
    return answer


def test_the_table_has_fifteen_tools_whose_schemas_are_of_json_schema() -> None:
    assert [tool.name for tool in TOOLS] == [
        "ticket", "topology", "job", "show", "ethtool", "logs", "flows", "probe", "capture", "advance", "config",
        "classes", "hint", "submit", "give_up",
    ]  # fmt: skip
    for tool in TOOLS:
        schema = tool.schema()
        assert set(schema["required"]) <= set(schema["properties"]) and {"cursor", "form"} <= set(schema["properties"])
    assert "interfaces errors" in BY_NAME["show"].schema()["properties"]["view"]["enum"]
    assert "interface shutdown" in BY_NAME["config"].about and "slow_pcie" in BY_NAME["submit"].about


@pytest.mark.parametrize(
    ("tool", "given", "line"),
    [
        ("job", {}, "show job"),
        ("show", {"view": "nics", "changed_since": "300us"}, "show nics --changed 300us"),
        ("show", {"view": "flows", "options": "leaf0"}, "show flows leaf0"),
        ("ethtool", {"rank": 3}, "show ethtool 3"),
        ("logs", {}, "show logging"),
        ("logs", {"who": "a b"}, "show logging --who 'a b'"),
        ("probe", {"kind": "lat", "a": 0, "b": 3}, "probe lat 0 3"),
        ("probe", {"kind": "mesh"}, "probe mesh"),
        (
            "capture",
            {"place": "leaf0:1", "us": 20, "filter": "psn > 3"},
            "capture leaf0:1 --for 20us --filter 'psn > 3'",
        ),
        ("advance", {"us": 12.5}, "advance 12.5us"),
        ("advance", {"steps": 10}, "advance 10 steps"),
        ("advance", {"until": "step > 1.2x", "us": 100}, "until 'step > 1.2x' --for 100us"),
        ("config", {"command": "interface shutdown leaf0:4"}, "config interface shutdown leaf0:4"),
        ("submit", {"answer": "loss@all"}, "submit loss@all"),
        ("give_up", {}, "give-up"),
    ],
)
def test_a_tool_makes_a_line(tool: str, given: dict[str, Any], line: str) -> None:
    BY_NAME[tool].check(given)
    assert BY_NAME[tool].line(given) == line


def test_a_drill_is_played_to_its_end_by_tools_and_lines(game: Game) -> None:
    desk = AgentSession(game)
    assert asked(desk, {"tool": "ticket", "id": 7})["id"] == 7
    assert "1 leaf0:5" in asked(desk, {"tool": "topology"})["text"]
    plan = asked(desk, {"tool": "advance", "arguments": {"steps": 2}, "form": "json"})
    assert json.loads(plan["text"])["steps_ns"] == [60_000, 60_000] and plan["time_ns"] == game.time_ns
    assert asked(desk, {"command": "status"})["ok"] and not desk.over
    assert "SCORE" in asked(desk, {"tool": "submit", "arguments": {"answer": str(game.stage.drawn.truth[0])}})["text"]
    assert desk.over and asked(desk, {"command": "report"})["ok"]


def merged(one: Any, other: Any) -> Any:
    """As docs/drill-agents.md says: objects key by key, lists behind each other."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one | {key: merged(one[key], value) if key in one else value for key, value in other.items()}
    return one + other if isinstance(one, list) else other


def test_pages_of_json_are_whole(game: Game) -> None:
    """Also under an id that is as long as it may be, and is written longer."""
    desk = AgentSession(game)
    for request, data in (
        ({"tool": "topology"}, game.fabric.to_dict()),
        ({"tool": "classes"}, game.command("classes").data),
        ({"command": "help"}, game.command("help").data),
        ({"command": "ticket"}, game.ticket()),
    ):
        page = asked(desk, {**request, "form": "json"})
        found, pages = json.loads(page["text"]), 1
        while "next" in page:
            page = asked(desk, {"cursor": page["next"], "id": "\u0001" * 64})
            found, pages = merged(found, json.loads(page["text"])), pages + 1
        assert found == json.loads(json.dumps(data))
        assert pages > 1 or len(json.dumps(data)) < LIMIT, request
    assert not asked(desk, {"cursor": "1:99"})["ok"]


def test_who_is_measured_is_told_neither_score_nor_truth(game: Game) -> None:
    desk = AgentSession(game, blind=True)
    told = asked(desk, {"tool": "submit", "arguments": {"answer": str(game.stage.drawn.truth[0])}})
    assert (told["ok"], told["text"]) == (True, "the drill is over")
    for request in ({"command": "report"}, {"command": "actions"}, {"cursor": "1:0"}):
        assert asked(desk, request)["error"]["what"] == "the drill is over"


HOSTILE = [
    b"", b"{", b"[]", b"null", b'"show job"', b"\xff\xfe", b"{}", b'{"command": 1}', b'{"command": null}',
    b'{"command": ""}', b'{"command": "show \\u0000 \\ud800 job"}', b'{"command": "show job", "tool": "job"}',
    b'{"tool": "rm"}', b'{"tool": ["job"]}', b'{"tool": "job", "arguments": [1]}', b'{"arguments": {}}',
    b'{"tool": "job", "arguments": {"x": 1}}', b'{"tool": "ethtool"}',
    b'{"tool": "ethtool", "arguments": {"rank": true}}',
    b'{"tool": "ethtool", "arguments": {"rank": -1}}', b'{"tool": "advance", "arguments": {"us": NaN}}',
    b'{"tool": "advance", "arguments": {"us": 1e999}}', b'{"tool": "advance", "arguments": {"us": 1, "steps": 1}}',
    b'{"tool": "advance", "arguments": {}}', b'{"tool": "show", "arguments": {"view": "truth"}}',
    b'{"tool": "show", "arguments": {"view": "job", "options": "\\" ; cat /etc/passwd"}}', b'{"cursor": "9:9"}',
    b'{"cursor": 3}', b'{"cursor": "1:-1"}', b'{"id": {}, "command": "status"}',
    b'{"id": "' + b"x" * 65 + b'", "command": "status"}',
    b'{"command": "config ' + b"x" * 3000 + b'"}', b"[" * 100_000, b'{"command": "status", "form": "xml"}', b"1" * 5000,
    b'{"command": "submit ' + b"\\u0001@\\n " * 180 + b'"}', b'{"what": 1}', b'{"command": "shutdown leaf0:1"}',
]  # fmt: skip


@pytest.mark.parametrize("line", HOSTILE)
def test_hostile_requests_are_answered(game: Game, line: bytes) -> None:
    desk = AgentSession(game)
    before = game.time_ns
    answer = json.loads(said := desk.ask_line(line))
    assert len(said) <= LIMIT and not answer["ok"] and answer["error"]["what"] and answer["time_ns"] == before
    assert asked(desk, {"command": "status"})["ok"]


def test_random_bytes_are_answered(game: Game) -> None:
    desk, draw = AgentSession(game), random.Random(5)
    whole = b'{"tool": "show", "arguments": {"view": "nics", "changed_since": "3us"}, "id": 4}'
    for _ in range(500):
        line = bytearray(whole)
        for _ in range(draw.randrange(1, 6)):
            line[draw.randrange(len(line))] = draw.randrange(256)
        assert "ok" in json.loads(desk.ask_line(bytes(line)))


def test_a_long_answer_is_read_on_by_cursors() -> None:
    pages = Pages()
    text = "\n".join(f'row {n} "quoted" \\ \t \x1b[2J é 漢' for n in range(900))
    page = pages.first({"ok": True, "id": "a" * 60, "time_ns": 123456789}, text)
    read, count = page["text"], 1
    while "next" in page:
        assert len(dumped(page)) <= LIMIT and page["text"].endswith("\n")
        page = pages.further(page["next"], {"id": "b" * 64})
        read, count = read + page["text"], count + 1
    assert read == text.replace("\x1b", "\\x1b") and count >= 9
    first = pages.first({}, text)["next"]
    for _ in range(KEPT):
        pages.first({}, text)
    with pytest.raises(InputError, match="no cursor"):
        pages.further(first, {})


def test_a_page_is_full(game: Game) -> None:
    page = Pages().first({"ok": True}, "x" * 10_000)
    assert LIMIT - 60 < len(dumped(page)) <= LIMIT


def lines_of(data: bytes) -> list[bytes | None]:
    reads, writes = os.pipe()

    def write() -> None:
        with os.fdopen(writes, "wb") as pipe:
            pipe.write(data)

    thread = threading.Thread(target=write)
    thread.start()
    try:
        return list(jsonl.lines(reads))
    finally:
        os.close(reads)
        thread.join()


def test_lines_that_are_too_long_are_left_out_whole() -> None:
    most = jsonl.LONGEST_LINE
    assert lines_of(b"a\n\n" + b"x" * (3 * most) + b"\nb\n" + b"y" * most + b"\nend") == [
        b"a", b"", None, b"b", b"y" * most, b"end",
    ]  # fmt: skip
    assert lines_of(b"x" * (most + 1)) == [None]
    assert lines_of(b"") == []


def test_nobody_reads_the_answers(game: Game) -> None:
    reads, writes = os.pipe()
    other, mine = os.pipe()
    os.write(mine, b'{"command": "status"}\n{"command": "advance 60us"}\n')
    os.close(mine)
    os.close(reads)
    before = game.time_ns
    jsonl.serve(AgentSession(game), other, writes)
    assert game.time_ns == before  # the second was not carried out
    os.close(other)
    os.close(writes)


def test_without_the_package_it_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mcp.server", None)
    with pytest.raises(MachineError) as raised:
        mcp.require_mcp()
    assert "-m pip install 'mcp" in raised.value.hint and "--jsonl" in raised.value.hint


def test_by_the_official_client_in_memory(game: Game) -> None:
    pytest.importorskip("mcp", reason="needs the Python package mcp (requirements-dev.lock has it)")
    import anyio
    from mcp import Client

    async def play() -> None:
        async with Client(mcp.server_of(AgentSession(game))) as client:
            listed = (await client.list_tools()).tools
            assert [tool.name for tool in listed] == [tool.name for tool in TOOLS]
            assert listed[3].input_schema == BY_NAME["show"].schema()
            good = await client.call_tool("advance", {"us": 60})
            assert json.loads(good.content[0].text)["time_ns"] == game.time_ns and not good.is_error  # type: ignore[union-attr]
            bad = await client.call_tool("show", {"view": "job", "what": "x"})
            assert bad.is_error and "unknown argument 'what'" in bad.content[0].text  # type: ignore[union-attr]

    anyio.run(play)


# -- figures


def test_the_sign_test_by_hand() -> None:
    assert figures.sign_test(8, 2) == 2 * (1 + 10 + 45) / 1024
    assert figures.sign_test(2, 8) == figures.sign_test(8, 2)
    assert figures.sign_test(5, 0) == 2 / 32
    assert figures.sign_test(3, 3) == 1.0 == figures.sign_test(0, 0)


def test_intervals_by_hand() -> None:
    assert figures.between(list(range(2000))) == (50, 1949)
    # of two drills with 0 and 1, a resample has the means 0, 1/2 and 1 with 1/4, 1/2 and 1/4
    assert figures.estimate([("a", 0.0), ("b", 1.0)]) == figures.Estimate(0.5, 0.0, 1.0)
    # cases of one drill are taken together: there is nothing to draw from
    assert figures.estimate([("a", 0.0), ("a", 1.0)]) == figures.Estimate(0.5, 0.5, 0.5)
    assert figures.estimate([]) is None
    forty = figures.estimate([(str(k), float(k < 10)) for k in range(40)])
    assert forty is not None and forty.mean == 0.25
    # binomial(40, 1/4) / 40: its 2.5 % and 97.5 % points are 5/40 and 16/40, and may be drawn one beside
    assert abs(forty.low - 5 / 40) < 1.01 / 40 and abs(forty.high - 16 / 40) < 1.01 / 40
    assert figures.estimate([(str(k), float(k < 10)) for k in range(40)]) == forty


def test_paired_by_hand() -> None:
    found = figures.paired(["a", "a", "b", "c", "d"], [1, 0, 5, 2, 3], [2, 1, 4, 2, 9])
    assert (found.better, found.worse, found.p) == (2, 1, 1.0)
    assert found.difference.mean == (1 + 1 - 1 + 0 + 6) / 5


# -- suites


def test_seeds_follow_from_the_secret(tmp_path: Path) -> None:
    assert suite.seed(suite.DEV, "lost/dirty-optics", 0) == suite.seed(suite.DEV, "lost/dirty-optics", 0)
    drawn = {suite.seed(secret, drill, k) for secret in (b"a", b"b") for drill in ("x", "y") for k in range(50)}
    assert len(drawn) == 200 and all(len(seed) == suite.LETTERS for seed in drawn)
    path = tmp_path / "secret"
    path.write_text("  0123456789abcdef\n")
    assert suite.secret_of(str(path)) == b"0123456789abcdef" and suite.secret_of(None) == suite.DEV
    path.write_text("short")
    with pytest.raises(InputError, match="a secret of 5 bytes"):
        suite.secret_of(str(path))
    with pytest.raises(InputError, match="cannot be read"):
        suite.secret_of(str(tmp_path / "none"))


def test_every_drill_of_a_suite_has_its_healthy_twin() -> None:
    drills = suite.drills_of(["v1"])
    assert [drill.id for drill in drills] == [name for name in file.catalogue() if not file.load(name).on_real_clock]
    todo = suite.assignments(drills, 2, suite.DEV)
    sick = [(task.drill.id, task.seed) for task in todo if not task.healthy]
    well = [(task.drill.id, task.seed) for task in todo if task.healthy]
    assert set(sick) <= set(well) and len(well) == 2 * len(drills) and len({task.world for task in todo}) == len(todo)
    assert todo != suite.assignments(drills, 2, b"another") and todo == suite.assignments(drills, 2, suite.DEV)


def test_what_is_wrong_with_a_suite(tmp_path: Path) -> None:
    path = tmp_path / "s.yaml"
    path.write_text("drills:\n  - lost/dirty-optics\n  - lost/dirty-optix\n")
    with pytest.raises(InputError) as raised:
        suite.drills_of([str(path)])
    assert raised.value.where == f"{file.shown(path)}:3: drills[1]" and "dirty-optics" in raised.value.hint
    with pytest.raises(InputError, match="unknown suite 'v9'"):
        suite.drills_of(["v9"])


# -- benchmarks


@pytest.fixture
def tasks(tmp_path: Path) -> list[suite.Assignment]:
    path = tmp_path / "d.yaml"
    path.write_text(TEXT)
    return suite.assignments([file.load(str(path))], 2, suite.DEV)


def played(
    tasks: list[suite.Assignment],
    agent: str,
    folder: Path,
    *,
    speaks: str = "jsonl",
    wall_s: float = 20,
    up: Any = FakeWorld,
) -> list[bench.CaseResult]:
    (cases,) = bench.run(tasks, players_of([agent], speaks, None), {}, suite.DEV, folder, wall_s=wall_s, up=up).values()
    return cases


def test_who_only_looks_gets_beside_others_what_he_gets_alone(tasks: list[suite.Assignment], tmp_path: Path) -> None:
    agents = [f"baseline:{name}" for name in ("random", "healthy", "thresholds")]
    worlds: list[FakeWorld] = []

    def up(case: Any) -> FakeWorld:
        worlds.append(FakeWorld(case))
        return worlds[-1]

    together = bench.run(tasks, players_of(agents, "jsonl", None), {}, suite.DEV, tmp_path / "all", wall_s=20, up=up)
    assert len(worlds) == len(tasks)
    for agent in agents:
        alone = played(tasks, agent, tmp_path / agent)
        assert together[agent] == alone, agent
        head, cases = bench.read(tmp_path / "all" / agent.replace(":", "-"))
        assert cases == alone and head["agent"] == agent


def test_a_benchmark_that_was_ended_goes_on(tasks: list[suite.Assignment], tmp_path: Path) -> None:
    players, folder = players_of(["baseline:random"], "jsonl", None), tmp_path / "out"
    (whole,) = bench.run(tasks, players, {}, suite.DEV, tmp_path / "whole", wall_s=20, up=FakeWorld).values()

    def ends(played: bench.CaseResult, name: str) -> None:
        if played.number == 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        bench.run(tasks, players, {}, suite.DEV, folder, wall_s=20, up=FakeWorld, told=ends)
    worlds: list[FakeWorld] = []

    def up(case: Any) -> FakeWorld:
        worlds.append(FakeWorld(case))
        return worlds[-1]

    (found,) = bench.run(tasks, players, {}, suite.DEV, folder, wall_s=20, up=up, resume=True).values()
    assert found == whole == bench.read(folder)[1] and len(worlds) == len(tasks) - 2
    with pytest.raises(InputError, match="another benchmark: secret"):
        bench.run(tasks, players, {}, b"0123456789abcdef", folder, wall_s=20, up=up, resume=True)
    with pytest.raises(InputError, match="cannot be read"):
        bench.run(tasks, players, {}, suite.DEV, tmp_path / "none", wall_s=20, up=up, resume=True)


@pytest.mark.parametrize("others", [["baseline:solver"], ["true"], ["baseline:traces", "baseline:random"]])
def test_who_changes_the_world_plays_alone(others: list[str]) -> None:
    with pytest.raises(InputError, match="only if none of them changes it"):
        players_of(["baseline:healthy", *others], "jsonl", None)


def script(*words: str) -> str:
    return shlex.join([sys.executable, str(AGENT), *words])


def test_a_baseline_is_measured(tasks: list[suite.Assignment], tmp_path: Path) -> None:
    cases = played(tasks, "baseline:healthy", tmp_path / "out")
    row = bench.row("healthy", cases)
    assert (row["n"], row["rca_f1"]["mean"], row["false_alarms"], row["score"]["mean"]) == (4, 0.0, 0.0, 50.0)
    assert [case.failed for case in cases] == [""] * 4
    assert bench.read(tmp_path / "out")[1] == cases
    assert (tmp_path / "out").stat().st_mode & 0o777 == 0o700
    assert len(list((tmp_path / "out").glob("*.log"))) == 4
    again = played(tasks, "baseline:random", tmp_path / "random")
    assert [case.answer for case in again] == [c.answer for c in played(tasks, "baseline:random", tmp_path / "twice")]
    assert bench.row("random", again)["false_alarms"] == 1.0
    told = compared(tmp_path / "random", tmp_path / "out")
    score = next(row for row in told["rows"] if row["measure"] == "score")
    assert told["n"] == 4 and score["difference"]["mean"] == pytest.approx(50.0 - bench.row("", again)["score"]["mean"])


def test_an_agent_that_fails_has_nothing(tasks: list[suite.Assignment], tmp_path: Path) -> None:
    cases = played(tasks[:1], script("status", "die"), tmp_path / "dead")
    assert cases[0].failed == "it ended with code 3 before the drill was over" and cases[0].score == 0.0
    cases = played(tasks[:1], script("status", "hang"), tmp_path / "late", wall_s=0.3)
    assert cases[0].failed == "it took more than 0.3 s of wall time" and cases[0].score == 0.0
    assert (tmp_path / "late" / "0000.transcript.jsonl").read_text().count("\n") == 1
    cases = played(tasks[:1], script("advance 2ms"), tmp_path / "budget")
    assert "no answer within the budget" in cases[0].failed and cases[0].score == 0.0


def test_an_agent_plays(tasks: list[suite.Assignment], tmp_path: Path) -> None:
    well = [task for task in tasks if task.healthy][:1]
    cases = played(well, script('{"tool": "ticket"}', "submit healthy", "report"), tmp_path / "out")
    assert (cases[0].score, cases[0].failed, cases[0].calls) == (100.0, "", 2)
    assert "SCORE" not in (tmp_path / "out" / "0000.stderr").read_text()


def test_an_agent_plays_by_mcp(tasks: list[suite.Assignment], tmp_path: Path) -> None:
    pytest.importorskip("mcp", reason="needs the Python package mcp (requirements-dev.lock has it)")
    well = [task for task in tasks if task.healthy][:1]
    agent = shlex.join([sys.executable, str(AGENT.with_name("mcp_agent.py"))])
    cases = played(well, agent, tmp_path / "out", speaks="mcp")
    assert (cases[0].score, cases[0].failed, cases[0].calls, cases[0].time_ns) == (100.0, "", 2, 60_000)


def test_a_world_that_dies_is_never_scored(tasks: list[suite.Assignment], tmp_path: Path) -> None:
    lives: list[Any] = []
    well = [task for task in tasks if task.healthy][:1]

    class Mortal(FakeWorld):
        def digest(self) -> str:
            if len(lives) < 2:
                lives.append(self)
                raise WorldGone("fabricd has ended")
            return super().digest()

    cases = played(well, script("advance 60us", "submit healthy"), tmp_path / "twice", up=Mortal)
    assert not cases[0].left_out and not cases[0].failed and len(lives) == 2
    lives.clear()

    class Dead(FakeWorld):
        def digest(self) -> str:
            lives.append(self)
            raise WorldGone("fabricd has ended")

    cases = played(tasks[:1], script("advance 60us"), tmp_path / "never", up=Dead)
    assert cases[0].left_out == "the world has died (3 times)" and len(lives) == bench.TRIES
    assert bench.row("", cases)["n"] == 0


def test_only_the_same_worlds_are_compared(tasks: list[suite.Assignment], tmp_path: Path) -> None:
    played(tasks, "baseline:healthy", tmp_path / "a")
    played(tasks[:2], "baseline:healthy", tmp_path / "b")
    with pytest.raises(InputError, match="2 of 4 worlds are only in the first, 0 only in the second"):
        compared(tmp_path / "a", tmp_path / "b")
    with pytest.raises(InputError, match="cannot be read"):
        compared(tmp_path / "a", tmp_path / "none")
    (tmp_path / "b" / bench.RESULTS).write_text("[]")
    with pytest.raises(InputError, match="no results of a benchmark"):
        compared(tmp_path / "a", tmp_path / "b")


@pytest.mark.parametrize(("agent", "what"), [
    ("baseline:best", "unknown baseline 'best'"), ("no-such-command-anywhere x", "there is no command"),
    ("'", "no closing"), ("", "there is no command"),
])  # fmt: skip
def test_what_is_wrong_with_an_agent(agent: str, what: str) -> None:
    with pytest.raises(InputError, match=what):
        players_of([agent], "jsonl", None)
