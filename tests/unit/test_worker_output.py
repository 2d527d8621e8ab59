"""What workers print is not trusted: it ends no run with a traceback, reaches no terminal raw and fills no disk."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from testbed.base import worker_output
from testbed.base.text import printable
from testbed.base.worker_output import TEXT_MAX, OutputParser, UnexpectedLine
from testbed.experiment import loads
from testbed.plan.steps import plan as planning
from testbed.run import run as running
from testbed.run.outcome import RunFailed
from tests.parts.fake_lab import FakeLab, Script, result_line

EXPERIMENT = """
name: output
fabric: {topology: {ring: {nodes: 3}}}
workload:
  - {collective: all_reduce, algorithm: ring, sizes: [1KiB], iterations: 2}
  - {flows: [{from: 1, to: 0, size: 10MB}]}
"""
RESULT = {
    "kind": "collective", "step": 0, "collective": "all_reduce", "algorithm": "ring", "size_bytes": 1024,
    "iteration": 0, "start_ns": 0.0, "end_ns": 2000.5, "wrong": 0,
}  # fmt: skip
FLOW = {
    "kind": "flow", "step": 1, "flow": 0, "from": 1, "to": 0, "size_bytes": 10**7, "start_ns": 0, "end_ns": 5,
    "wrong": 0, "role": "sender",
}  # fmt: skip


@pytest.fixture
def parser() -> OutputParser:
    return OutputParser(planning.plan(loads(EXPERIMENT, "output.yaml")).told())


def line(parser: OutputParser, rank: int = 0, **fields: Any) -> dict[str, Any] | None:
    return parser.line(rank, json.dumps(fields).encode())


def test_what_the_plan_has_is_taken_as_it_is(parser: OutputParser) -> None:
    assert line(parser, **RESULT, host_ns=3.5, sent_bytes=7) == {**RESULT, "host_ns": 3.5, "sent_bytes": 7, "rank": 0}
    assert line(parser, 1, **FLOW) == {**FLOW, "rank": 1}
    assert line(parser, kind="done", more=1) == {"kind": "done", "rank": 0}
    assert line(parser, 2, **RESULT, unknown=[1]) == {**RESULT, "rank": 2}


def test_times_go_as_far_as_the_clock_does_and_then_it_is_said() -> None:
    """fabricd counts picoseconds up to 2^60 (docs/clocks.md)."""
    text = "name: t\nfabric: {topology: {star: {hosts: 2}}}\nworkload: [{tasks: {list: [{id: a, compute: 1us}]}}]"
    parser, about = OutputParser(planning.plan(loads(text)).told()), {"kind": "timeline", "step": 0, "iteration": 0}
    for end in (2**53 + 1, 2**60):
        assert line(parser, **about, first=0, times=[[0, end, 0]]) is not None
    with pytest.raises(UnexpectedLine, match="times: later than thirteen days of emulated time, where the clock ends"):
        line(parser, **about, first=0, times=[[0, 2**60 + 1000, 0]])
    with pytest.raises(UnexpectedLine, match="times: not a time"):
        line(parser, **about, first=0, times=[[0, True, 0]])


BAD: list[dict[str, Any]] = [
    {"step": 2}, {"step": -1}, {"step": "0"}, {"step": True}, {"step": 1}, {"step": [0]}, {"step": None},
    {"collective": "broadcast"}, {"collective": {}}, {"algorithm": "\x1b[31mring"}, {"size_bytes": 1025},
    {"size_bytes": 1024.0}, {"iteration": 2}, {"iteration": 10**30}, {"start_ns": float("nan")}, {"end_ns": 1e300},
    {"end_ns": float("inf")}, {"end_ns": "1"}, {"end_ns": -1}, {"start_ns": 3000}, {"start_ns": None}, {"wrong": -1},
    {"wrong": 1.5}, {"wrong": 2**60}, {"wrong": False}, {"fallback": 3}, {"sent_bytes": "x"}, {"host_ns": -0.5},
]  # fmt: skip


@pytest.mark.parametrize("change", BAD, ids=str)
def test_what_the_plan_does_not_have_is_refused(parser: OutputParser, change: dict[str, Any]) -> None:
    with pytest.raises(UnexpectedLine):
        line(parser, **{**RESULT, **change})


@pytest.mark.parametrize("change", [{"flow": 1}, {"flow": "0"}, {"from": 2}, {"to": 2}, {"step": 0}, {"role": "x"}])
def test_flows_are_the_plans_too(parser: OutputParser, change: dict[str, Any]) -> None:
    with pytest.raises(UnexpectedLine):
        line(parser, **{**FLOW, **change})
    with pytest.raises(UnexpectedLine):
        line(parser, 2, **FLOW)


@pytest.mark.parametrize("missing", sorted(set(RESULT) - {"kind"}))
def test_nothing_may_be_missing(parser: OutputParser, missing: str) -> None:
    with pytest.raises(UnexpectedLine):
        line(parser, **{key: value for key, value in RESULT.items() if key != missing})


def test_results_are_counted(parser: OutputParser) -> None:
    for _ in range(2 + 2):  # a collective's two iterations, both ends of a flow
        line(parser, **RESULT)
    with pytest.raises(UnexpectedLine, match="more than the 4 results"):
        line(parser, **RESULT)
    assert line(parser, 1, **RESULT)


@pytest.mark.parametrize(
    "text", [b"hello", b"[]", b"3", b"null", b'{"kind": []}', b'{"kind": "other"}', b"[" * 100_000, b"9" * 100_000]
)
def test_anything_else_is_text(parser: OutputParser, text: bytes) -> None:
    assert parser.line(0, text) is None


def test_a_message_is_cut(parser: OutputParser) -> None:
    said = line(parser, kind="error", what="x" * 5000)
    assert said is not None and said["what"] == "x" * TEXT_MAX


def test_text_has_no_control_characters() -> None:
    assert printable("a\tb \x1b[2J\x07\x9b\r\n\u202eäöü") == "a\tb \\x1b[2J\\x07\\x9b\\r\\n\\u202eäöü"


def test_only_so_much_text_is_kept(parser: OutputParser, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_output, "KEPT_BYTES", 100)
    kept = [parser.text(0, b"x" * 30) for _ in range(10)]
    assert [bool(text) for text in kept] == [True] * 4 + [False] * 6
    assert kept[3].startswith("[more than")
    assert parser.text(1, b"y") == "y"


# -- in a run


def fails(folder: Path, script: Callable[[int], Script]) -> RunFailed:
    def up(experiment: Any) -> Any:
        return FakeLab(experiment.build_fabric(), folder, script)

    with pytest.raises(RunFailed) as told:
        running.run(loads(EXPERIMENT, "output.yaml"), folder / "run", up=up)
    return told.value


@pytest.mark.parametrize("text", ['{"kind": "collective"}', '{"kind": "flow", "step": []}', '{"kind": "error"}'])
def test_the_rank_that_says_nonsense_is_named(tmp_path: Path, text: str) -> None:
    failure = fails(
        tmp_path, lambda rank: f"print({text!r}, flush=True); time.sleep(60)" if rank == 1 else "time.sleep(60)"
    )
    assert failure.what.startswith("rank 1: its worker printed a line that is not as it should be")


def test_escape_sequences_of_a_worker_stay_in_its_log_as_text(tmp_path: Path) -> None:
    script = "print('\\x1b]0;title\\x07out'); sys.stderr.write('\\x1b[2Jerr\\n'); sys.exit(3)"
    failure = fails(tmp_path, lambda rank: script if rank == 0 else "time.sleep(60)")
    assert "\x1b" not in json.dumps(failure.to_dict(), ensure_ascii=False)
    log = (failure.folder / "logs" / "rank0.log").read_text()
    assert sorted(log.splitlines()) == ["\\x1b[2Jerr", "\\x1b]0;title\\x07out"]


def test_a_worker_cannot_fill_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_output, "KEPT_BYTES", 1 << 16)
    flood = f"""
import threading
def flood(stream):
    for _ in range(200): stream.write('x' * 9999 + '\\n')
    stream.flush()
a = threading.Thread(target=flood, args=(sys.stderr,)); a.start(); flood(sys.stdout); a.join()
{result_line(0)}
for _ in range(50): say('progress', done=1, of=2)
for _ in range(50): {result_line(0)}
time.sleep(60)
"""
    failure = fails(tmp_path, lambda rank: flood if rank == 0 else "time.sleep(60)")
    assert "more than the 4 results" in failure.what
    sizes = sum(os.stat(p).st_size for p in failure.folder.rglob("*") if p.is_file())
    assert sizes < 1 << 18
