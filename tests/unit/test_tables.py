"""The terminal's table: nccl-tests' columns, flows, and that an invalid or failed run says so first."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console, RenderableType

from results import Run, load
from results.store.folder import RunFolder
from results.store.sweeps import Sweep
from testbed.base.yaml_writer import dump
from testbed.commands._counters import with_scale_up
from testbed.experiment import loads
from testbed.plan.steps.plan import plan
from testbed.tables.paper import markdown
from testbed.tables.results import _flows, counters, of_run, of_sweep, show

EXPERIMENT = """
name: small
fabric: {topology: {rail: {servers: 2, gpus: 2, spines: 1}}}
workload:
  - {collective: all_reduce, sizes: [1KiB, 16MiB], iterations: 2}
  - {flows: [{from: 1, to: 0, size: 10MB}, {from: 2, to: 3, size: 5MB, start: 1us}]}
  - {collective: all_gather, sizes: [1MiB], dtype: float16}
"""
EXACT = {"verdict": "exact", "reasons": [], "advice": []}
DROPS = [{"node": "rail0", "port": 1, "reason": "tail", "count": 3, "headers": "h"}]

GOLDEN = """\
# small: rail (servers 2, gpus 2, spines 1), virtual clock, seed 1
#
# all_reduce (ring), 4 ranks, mean of 2 iterations
#       size       count     type  redop       time    algbw    busbw  #wrong
#        (B)  (elements)                       (us)   (GB/s)   (GB/s)
        1024         256  float32    sum      9.500     0.11     0.16       0
    16777216     4194304  float32    sum     700.00    23.97    35.95       0
#
# flows (RDMA write), 2 in this step
#       flow        size      start       time    algbw  slowdown  #wrong
# (from->to)         (B)       (us)       (us)   (GB/s)
        1->0    10000000      0.000     210.00    47.62      1.05       0
        2->3     5000000      1.000     105.00    47.62                 0
#
# all_gather (ring), 4 ranks
#       size       count     type  redop       time    algbw    busbw  #wrong
#        (B)  (elements)                       (us)   (GB/s)   (GB/s)
     1048576      131072  float16   none      50.00    20.97    15.73       0
#
"""


def stored(folder: Path, fidelity: dict[str, Any] = EXACT, error: dict[str, str] | None = None) -> Run:
    experiment = loads(EXPERIMENT)
    described = plan(experiment).described()
    run = RunFolder.create("small", folder / "run")
    with (run.path / "experiment.yaml").open("w") as file:
        dump(experiment.resolved(), file)
    run.write_json("steps.json", {"ranks": 4, "steps": described})
    run.write_json("fidelity.json", fidelity)
    rows = [
        collective(described[0], 0, size, i, time)
        for size, time in ((1024, 9000), (1 << 24, 699_500))
        for i, time in enumerate((time, time + 1000))
    ]
    rows += [flow("1->0", 10**7, 0, 210_000) | {"slowdown": 1.05}, flow("2->3", 5 * 10**6, 1000, 105_000)]
    rows += [collective(described[2], 2, 1 << 20, 0, 50_000)]
    run.write_frame("results", rows)
    run.write_frame("drops", DROPS)
    return load(run.fail(error) if error else run.complete())


def collective(step: dict[str, Any], number: int, size: int, iteration: int, time: float) -> dict[str, Any]:
    row = {key: step[key] for key in ("collective", "algorithm", "dtype", "op", "ranks")}
    algbw = size / time * 1e9
    return row | {
        "step": number, "kind": "collective", "size_bytes": size, "iteration": iteration, "start_ns": 0, "end_ns": time,
        "time_ns": time, "algbw_Bps": algbw, "busbw_Bps": algbw * step["busbw_factor"], "wrong": 0,
    }  # fmt: skip


def flow(name: str, size: int, start: float, time: float) -> dict[str, Any]:
    rate = size / time * 1e9
    return {
        "step": 1, "kind": "flow", "flow": name, "algorithm": "write", "ranks": 2, "size_bytes": size,
        "start_ns": start, "end_ns": start + time, "time_ns": time, "algbw_Bps": rate, "busbw_Bps": rate, "wrong": 0,
    }  # fmt: skip


def text(run: Run, width: int) -> str:
    return text_of(of_run(run), width)


def text_of(shown: RenderableType, width: int) -> str:
    console = Console(file=io.StringIO(), width=width, highlight=False)
    show(shown, console)
    assert isinstance(console.file, io.StringIO)
    return "\n".join(line.rstrip() for line in console.file.getvalue().splitlines()) + "\n"


@pytest.mark.parametrize("width", [80, 120])
def test_the_table_is_that_of_nccl_tests(tmp_path: Path, width: int) -> None:
    shown = text(stored(tmp_path), width)
    head, _, footer = shown.partition("# Avg bus bandwidth : ")
    assert head == GOLDEN
    assert footer.splitlines() == [
        "17.2805 GB/s",
        "# Wrong elements    : 0 OK",
        "# Fidelity          : exact; frames dropped: 3 tail",
        f"# Run folder        : {tmp_path / 'run'}",
    ]


def test_an_invalid_run_says_so_before_any_figure(tmp_path: Path) -> None:
    fidelity = {
        "verdict": "invalid",
        "reasons": ["99 % of events " + "very " * 20 + "late"],
        "advice": ["more dilation"],
    }
    shown = text(stored(tmp_path, fidelity), 80)
    assert shown.index("INVALID") < shown.index("all_reduce")
    assert "#   - to change it: more dilation" in shown
    assert max(len(line) for line in shown.splitlines() if "Run folder" not in line) <= 80


def test_no_line_is_wrapped_in_a_pipe(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fidelity = {"verdict": "invalid", "reasons": ["99 % of events " + "very " * 40 + "late"], "advice": []}
    show(of_run(stored(tmp_path, fidelity)))
    shown = capsys.readouterr().out.splitlines()
    assert any("very very late" in line and line.startswith("#") for line in shown)
    assert all(line.startswith(("#", " ")) for line in shown if line.strip())


def test_names_and_numbers_are_whole_on_a_narrow_terminal() -> None:
    name = "nic:0.complex->nic:1.complex"
    (_, table) = _flows([flow(name, 123_456_789_012_345, 0, 210_000) | {"slowdown": 1.05}])
    narrow, wide = (text_of(table, width) for width in (80, 200))
    assert narrow == wide
    assert narrow.splitlines()[-1].split()[:2] == [name, "123456789012345"]


def test_a_failed_run_says_why_before_any_figure(tmp_path: Path) -> None:
    shown = text(stored(tmp_path, error={"what": "rank 3 died", "where": "", "hint": ""}), 80)
    assert shown.index("FAILED: rank 3 died") < shown.index("all_reduce")


def test_counters_leave_out_columns_in_which_nothing_stands() -> None:
    console = Console(file=io.StringIO(), width=80)
    show(counters("nics", [{"nic": "h0", "rank": 0, "retransmitted": 0, "out_of_sequence": 3}]), console)
    assert isinstance(console.file, io.StringIO)
    assert console.file.getvalue().split() == ["nic", "out_of_sequence", "h0", "3"]


def test_the_port_into_the_scale_up_domain_says_so() -> None:
    rows = [{"node": n, "port": p, "peer": peer} for n, p, peer in (("h0.0", 1, "r:1"), ("h0.0", 2, ""), ("r", 9, ""))]
    assert [row["peer"] for row in with_scale_up(rows, {"r"})] == ["r:1", "scale-up", ""]


def test_a_run_of_an_older_version_shows_what_is_known(tmp_path: Path) -> None:
    """It has no rate of the wire for a ping-pong: what comes before that table is shown, and what is missing said."""
    text = """
name: old
fabric: {topology: {star: {hosts: 2}}}
workload:
- serve: {model: {layers: 1, hidden: 64, heads: 1, seq: 64, experts: 2, top_k: 1}, attention: {ranks: [0], layer: 1us},
          experts: {ranks: [1], layer: 1us}, tokens: 1, micro_batches: [1], output: 2}
"""
    experiment = loads(text)
    described = plan(experiment).described()
    for old in (False, True):
        if old:
            del described[0]["serving"]["wire_ns"]
        run = RunFolder.create("old", tmp_path / f"run{old}")
        with (run.path / "experiment.yaml").open("w") as file:
            dump(experiment.resolved(), file)
        run.write_json("steps.json", {"ranks": 2, "steps": described})
        rows = [
            {"step": 0, "iteration": 0, "rank": rank, "stream": "s", "task": f"a{token}.0", "operation": "compute",
             "kind": "attention", "start_ns": 100 * token, "end_ns": 100 * token + 50}
            for token in range(2) for rank in range(2)
        ]  # fmt: skip
        run.write_frame("results", [])
        run.write_frame("timeline", rows)
        printed = text_of(of_run(load(run.complete())), 200)
        assert "# serving" in printed and ("another version" in printed) == old
        assert ("steps.json has no 'wire_ns'" in printed) == old


def test_a_sweeps_table_ends_with_verdicts_and_errors(tmp_path: Path) -> None:
    points = [
        {"traffic": "flows", "last_us": 1.5, "fidelity": "exact", "run": "point-0"},
        {"traffic": "flows", "error": "stopped"},
        {"traffic": "training", "step_us": 2.5, "fidelity": "exact", "run": "point-2"},
    ]
    (tmp_path / "sweep.json").write_text(json.dumps({"name": "study", "keys": ["traffic"], "points": points}))
    (tmp_path / "state.json").write_text('{"state": "complete"}')
    _, head, first, second, third, *_ = text_of(of_sweep(Sweep(tmp_path)), 120).splitlines()
    assert head.split() == ["traffic", "last_us", "step_us", "fidelity", "error"]
    assert (first.split(), third.split()) == (["flows", "1.5", "exact"], ["training", "2.5", "exact"])
    assert second.split() == ["flows", "stopped"]


def test_a_papers_table_of_a_sweep_says_what_columns_are_and_a_rare_count_is_zero(tmp_path: Path) -> None:
    points = [
        {"transport.cc": "none", "time_us_1048576": 1.5, "retransmitted": 0, "fidelity": "exact", "run": "point-0"},
        {"transport.cc": "dcqcn", "error": "stopped"},
        {"transport.cc": "hpcc", "time_us_1048576": 2.5, "retransmitted": 9, "timeouts": 1, "run": "point-2"},
    ]
    (tmp_path / "sweep.json").write_text(json.dumps({"name": "study", "keys": ["transport.cc"], "points": points}))
    (tmp_path / "state.json").write_text('{"state": "complete"}')
    _, _, head, _, *rows = markdown(of_sweep(Sweep(tmp_path), labelled=True)).splitlines()
    cells = [[cell.strip() for cell in row.split("|")[1:-1]] for row in (head, *rows[:3])]
    assert cells[0] == ["cc", "time (us), 1 MiB", "packets sent again", "timeouts", "fidelity", "error"]
    assert [row[3] for row in cells[1:]] == ["0", "", "1"]
