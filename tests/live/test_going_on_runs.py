"""Training that goes on after failures, in one run: ranks are lost and started again at times of the emulated clock."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import results
from testbed.experiment import loads
from testbed.run.outcome import RunFailed
from testbed.run.run import run

FILE = """
name: going-on
fabric: {{topology: {{star: {{hosts: 3}}}}, nic: {{timeout: 20us, retry: 2}}}}
workers: {{memory: 64MiB, ranks_per_process: 4}}
workload:
- train:
    model: {{layers: 2, hidden: 64, heads: 4, seq: 64, dtype: float32}}
    gpu: {{preset: h100}}
    parallel: {{data: 2}}
    checkpoint: {{to: [2], every: 2, steps: 6, restart: 30us, monitor: 10us, restarts: {restarts}}}
inject:
- {fault}
- {{fault: straggler, factor: 2, on: "nic:0", at: 1s}}
"""
KILLED = '{fault: worker_killed, on: "nic:1", at: 84us}'
CUT = '{fault: cable_down, on: "nic:1", at: 84us, for: 300us}'


def went(folder: Path, fault: str, restarts: int = 3) -> tuple[str, Any, list[dict[str, Any]]]:
    done = run(loads(FILE.format(fault=fault, restarts=restarts)), folder)
    assert done.fidelity.verdict == "exact" and {row["wrong"] for row in done.results} == {0}
    events = [json.loads(text) for text in (folder / "events.jsonl").read_text().splitlines()]
    return done.metrics_sha256, done.going_on, [e for e in events if e["event"] == "restart"]


def test_a_killed_rank_is_started_again_and_lost_steps_are_done_again(tmp_path: Path) -> None:
    first = went(tmp_path / "first", KILLED)
    assert went(tmp_path / "second", KILLED) == first
    _, its, (restart,) = first
    (failure,) = its["failures"]
    assert (failure["failed_ns"], failure["noticed_ns"]) == (84_000, 90_000)
    assert restart["time_ns"] < 95_000, "what was to come does not hold up the restart"
    assert failure["reading_ns"] == pytest.approx(restart["time_ns"] + 30_000, abs=200)
    rows = [row for row in results.load(tmp_path / "first").rows("results") if row["step"] == 1]
    assert len(rows) == 6 + restart["lost"] and restart["lost"] == 1
    begun = sorted(row["start_ns"] for row in rows)
    assert begun[3] == pytest.approx(failure["back_ns"], abs=2000)
    usual = {row["time_ns"] for row in rows if row["iteration"] in (0, 2, 3)}
    assert max(usual) - min(usual) < 10, "a step after the restart takes as long as one before"


def test_a_rank_whose_cable_is_cut_ends_by_itself(tmp_path: Path) -> None:
    """Its queue pair gives up after its retries; when the launcher has started it again, the cable is back."""
    _, its, restarts = went(tmp_path / "run", CUT)
    assert its["failures"][0]["failed_ns"] == 84_000 and its["failures"][0]["noticed_ns"] > 84_000 + 2 * 20_000
    assert "ended" in restarts[0]["reason"]


def test_when_it_may_not_start_them_again_the_run_fails(tmp_path: Path) -> None:
    with pytest.raises(RunFailed, match="rank 1"):
        run(loads(FILE.format(fault=KILLED, restarts=0)), tmp_path / "run")
