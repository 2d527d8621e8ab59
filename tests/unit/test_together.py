"""Ranks that share a worker process: which do, and what each says of itself."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest

from testbed.base.errors import InputError
from testbed.base.worker_output import OutputParser
from testbed.experiment import Experiment, loads
from testbed.plan import together as plans
from testbed.plan.steps import plan as planning
from workloads import together, worker
from workloads.verbs import FabricError

TEXT = """
name: many
clock: CLOCK
fabric: {topology: {star: {hosts: 40}}}
workload: [{collective: barrier, algorithm: dissemination}]
workers: {WORKERS}
"""


def many(workers: str = "", clock: str = "virtual") -> Experiment:
    return loads(TEXT.replace("WORKERS", workers).replace("CLOCK", clock), "many.yaml")


def sizes(experiment: Experiment, ranks: int = 40, alone: set[int] | None = None) -> list[int]:
    parts = plans.processes(experiment, range(ranks), alone or set())
    assert sorted(rank for part in parts for rank in part) == list(range(ranks))
    return [len(part) for part in parts]


def test_few_ranks_have_a_process_each_and_many_share(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    assert sizes(many(), 16) == [1] * 16
    assert sizes(many(), 17) == [5, 5, 5, 2]
    assert sizes(many(), 4096) == [256] * 16


def test_the_experiment_says_how_many() -> None:
    assert sizes(many("ranks_per_process: 15")) == [15, 15, 10]
    assert sizes(many("ranks_per_process: 1")) == [1] * 40


def test_nobody_shares_where_the_speed_of_a_ranks_python_matters() -> None:
    assert sizes(many("cpus: 0.5")) == [1] * 40
    assert sizes(many(clock="real")) == [1] * 40
    with pytest.raises(InputError) as refused:
        many("ranks_per_process: 2", clock="real")
    assert refused.value.where.startswith("many.yaml:6") and "process of its own" in refused.value.what


def test_a_rank_whose_process_a_fault_strikes_shares_it_with_nobody() -> None:
    requests = [{"primitive": "act", "spec": {"worker": "kill", "rank": 3}}, {"primitive": "frames"}]
    assert plans.struck(requests) == {3}
    parts = plans.processes(many("ranks_per_process: 4"), range(6), {3})
    assert parts == [[0, 1, 2, 4], [3], [5]]


def test_a_rank_that_runs_programs_shares_its_container_with_nobody() -> None:
    step = "  - program: [ib_write_bw]\n    servers: [3]\n    clients: [1]\n"
    text = (
        f"name: a\nfabric: {{topology: {{star: {{hosts: 6}}}}}}\nworkers: {{ranks_per_process: 3}}\nworkload:\n{step}"
    )
    assert plans.processes(loads(text), range(6), ()) == [[0, 2, 4], [1], [3], [5]]


def test_what_a_process_says_is_of_the_rank_that_it_names_if_that_is_one_of_its_own() -> None:
    parser = OutputParser(planning.plan(many()).told())
    said = [b'{"kind": "done", "rank": 7}', b'{"kind": "done", "rank": 9}', b'{"kind": "done"}', b"7", b"[[", b"{"]
    assert [parser.speaker([6, 7, 8], text) for text in said] == [7, 6, 6, 6, 6, 6]


def test_each_rank_ends_for_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One fails as workers do, one by a mistake of ours; the third goes on."""
    plan = planning.plan(many()).told([4, 5, 6])
    (tmp_path / "plan.json").write_text(json.dumps(plan))
    monkeypatch.setenv("RAILBED_PLAN", str(tmp_path / "plan.json"))
    monkeypatch.setenv("RAILBED_SOCKETS", "/s")
    out = io.StringIO()
    monkeypatch.setattr("sys.stdout", out)
    monkeypatch.setattr("sys.stderr", io.StringIO())

    def serve(plan: worker.Plan, socket: str | None, emit: worker.Emit) -> int:
        assert socket == f"/s/{plan['rank']}/sock"
        if plan["rank"] == 5:
            raise ZeroDivisionError("by zero")
        emit({"kind": "error" if plan["rank"] == 4 else "done"})
        return int(plan["rank"] == 4)

    monkeypatch.setattr(worker, "serve", serve)
    assert together.main() == 1
    said: dict[int, Any] = {line["rank"]: line for line in map(json.loads, out.getvalue().splitlines())}
    assert said[4]["kind"] == "error" and said[6]["kind"] == "done"
    assert said[5]["what"] == "ZeroDivisionError: by zero"


def test_an_error_is_that_of_a_worker_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(*_: object, **__: object) -> None:
        raise FabricError("closed")

    monkeypatch.setattr(worker, "Device", gone)
    lines: list[dict[str, Any]] = []
    assert worker.serve({"costs": {}}, "/nowhere", lines.append) == 1
    assert lines == [{"kind": "error", "what": "FabricError: closed", "status": None, "peer": None}]
