"""A training run that goes on after failures: what its launcher makes of what it sees, and the account of it."""

from __future__ import annotations

from typing import Any

import pytest

from results.figures.checkpoints import slowdown
from results.figures.going_on import going_on
from results.figures.timeline import steps
from testbed.base.errors import InputError
from testbed.experiment import loads
from testbed.plan.steps.plan import plan
from testbed.run.launcher import RESTORED, STEPS, Launcher, later, without
from workloads.tasks.check import BadGraph
from workloads.tasks.graph import Graph
from workloads.tasks.program import compiled
from workloads.tasks.task import Collective

TOLD = {
    "steps": 6, "every": 2, "restart": 100.0, "monitor": 50.0, "restarts": 1, "failures": False, "between": 1000.0,
    "seed": 1, "training": [0, 1],
}  # fmt: skip


def text(checkpoint: str = "steps: 6", train: str = "", more: str = "", step: str = "") -> str:
    return f"""
name: t
fabric: {{topology: {{star: {{hosts: 3}}}}}}
workload:
- train:
    model: {{layers: 2, hidden: 64, heads: 4, seq: 64}}
    gpu: {{flops: 1T}}
    parallel: {{data: 2}}
    checkpoint: {{to: [2], every: 2, {checkpoint}}}
{train}{step}
{more}
"""


def line(rank: int, iteration: int, step: int = STEPS, kind: str = "tasks") -> dict[str, Any]:
    return {"kind": kind, "step": step, "iteration": iteration, "rank": rank}


def event(kind: str, time_ns: float, **more: Any) -> dict[str, Any]:
    return {"event": kind, "time_ns": time_ns, **more}


def test_it_goes_on_from_the_last_checkpoint() -> None:
    """Three steps are done by all, a fourth by one rank: of these the third is lost, as the second was stored."""
    launcher = Launcher(TOLD, 2)
    lines = [launcher.line(line(rank, k)) for k in range(3) for rank in (0, 1)] + [line(0, 3)]
    assert not launcher.event(event("act", 50, fault="launcher", on=False))
    launcher.event(event("fault", 60, fault="f1", on=True))
    launcher.event(event("worker_lost", 70, rank=1, reason="gone"))
    launcher.event(event("worker_lost", 70, rank=0, reason="gone, too"))
    assert not launcher.event(event("act", 75, fault="launcher", on=True))
    assert launcher.event(event("act", 100, fault="launcher", on=False)) and launcher.may
    launcher.noticed = True
    assert not launcher.event(event("worker_lost", 100, rank=2, reason="ended"))
    said = launcher.again(lines, 120)
    assert (said["rank"], said["failed_ns"], said["noticed_ns"], said["time_ns"]) == (0, 60, 100, 120)
    assert (said["ran"], said["first"], said["lost"]) == (3, 2, 1)
    assert launcher.whole(lines) == lines[:-1]
    again = [step.told() for step in launcher.plan_of(plan(loads(text()))).steps]
    assert [(its["iterations"], its.get("first")) for its in again] == [(1, None), (6, 2)] and not launcher.may
    assert launcher.line(line(0, 0, RESTORED))["iteration"] == 0
    assert [launcher.line(line(0, k))["iteration"] for k in (2, 3)] == [3, 4]


def test_faults_are_put_in_again_as_they_would_have_gone_on() -> None:
    kill = {"primitive": "act", "spec": {"worker": "kill", "rank": 0}}
    down = {"primitive": "params"}
    found = list(
        later(
            [
                {**kill, "fault": "f1", "at_ns": 10.0},
                {**kill, "fault": "f2", "at_ns": 200.0},
                {**down, "fault": "f3", "at_ns": 10.0, "for_ns": 50.0},
                {**down, "fault": "f4", "at_ns": 10.0, "for_ns": 120.0},
                {**down, "fault": "f5", "at_ns": 10.0},
                {**down, "fault": "f6", "at_ns": 10.0, "for_ns": 30.0, "every_ns": 80.0},
                {**kill, "fault": "f7", "at_ns": 10.0, "for_ns": 30.0, "every_ns": 80.0},
            ],
            100.0,
        )
    )
    times = {r["fault"]: [r.get(key) for key in ("at_ns", "for_ns", "every_ns")] for r in found}
    assert times == {
        "f2": [200, None, None], "f4": [100, 30, None], "f5": [100, None, None], "f6": [170, 30, 80],
        "f6.on": [100, 20, None], "f7": [170, 30, 80],
    }  # fmt: skip


def test_counters_do_not_show_the_launcher() -> None:
    rows = [{"fault": name, "hits": hits} for name, hits in (("f1", 1), ("launcher", 9), ("f1", 2), ("f1.on", 1))]
    assert without({"faults": rows, "drops": 1}) == {"faults": [{"fault": "f1", "hits": 4}], "drops": 1}


def test_failures_are_drawn_from_the_seed_as_often_as_stated() -> None:
    def of(seed: int, count: int) -> list[Any]:
        launcher = Launcher({**TOLD, "failures": True, "seed": seed}, 2)
        launcher.restarts = [{}] * count
        return launcher.failure(500.0)

    assert of(1, 0) == of(1, 0) != of(2, 0) and of(1, 0) != of(1, 1)
    drawn = [of(1, k)[0] for k in range(2000)]
    assert sum(one["at_ns"] - 500 for one in drawn) / 2000 == pytest.approx(1000, rel=0.05)
    assert {one["spec"]["rank"] for one in drawn} == {0, 1}


def row(step: int, iteration: int, task: str, kind: str, start: float, end: float) -> dict[str, Any]:
    return {
        "step": step, "iteration": iteration, "rank": 0, "stream": task, "task": task, "operation": "compute",
        "kind": kind, "group": "", "size_bytes": 0, "peer": None, "start_ns": start, "end_ns": end,
    }  # fmt: skip


def test_the_account_of_a_run() -> None:
    """Steps of 100, a pause of 20 after each second one; one failure at 270 loses a half step, and is back at 500."""
    rows = [row(RESTORED, 0, "read0", "checkpoint", 400, 500)]
    for k, begin in enumerate((0, 100, 500, 600, 720, 820)):
        rows.append(row(STEPS, k, "f", "forward", begin, begin + 100))
        if k % 2:
            rows.append(row(STEPS, k, "checkpoint", "checkpoint", begin + 100, begin + 120))
    failed = {"rank": 1, "failed_ns": 270.0, "noticed_ns": 300.0, "lost": 0}
    its = going_on([{}, {"going_on": TOLD}], steps(rows), [event("restart", 310, **failed), event("fault", 0)])
    assert its is not None
    assert (its.time_ns, its.step_ns, its.pause_ns, its.between_ns) == (940, 100, 20, 940)
    assert its.goodput == pytest.approx(600 / 940)
    assert its.expected == pytest.approx(1 / slowdown(200, 20, 230, 940))
    (one,) = its.failures
    assert (one.noticed_ns, one.reading_ns, one.back_ns) == (300, 400, 500)
    assert its.row()["failures"] == [{**failed, "reading_ns": 400, "back_ns": 500}] and its.row()["every"] == 2
    assert going_on([{}, {"going_on": TOLD}], steps(rows[:-3]), []) is None


def test_the_plan_has_the_checkpoint_in_every_so_many_steps_only() -> None:
    restored, whole = plan(loads(text())).told()["steps"]
    assert (restored["iterations"], whole["iterations"]) == (0, 6)
    every = {order["kind"]: order.get("every") for order in whole["tasks"]["0"]}
    assert every["checkpoint"] == 2 and every["forward"] is None
    reads = [order for order in restored["tasks"]["2"] if order["do"] == "compute"]
    assert {order["not_before_ns"] for order in reads} == {60e9}


def test_a_collective_is_of_every_iteration() -> None:
    tasks = {r: (Collective(id="c", collective="all_reduce", group="g", size_bytes=64, every=2),) for r in (0, 1)}
    with pytest.raises(BadGraph, match="in every iteration"):
        compiled(Graph({"g": ((0, 1),)}, tasks), lambda *_: {}, lambda *_: None, lambda _: {})  # type: ignore[arg-type, return-value]


@pytest.mark.parametrize(
    ("told", "what"),
    [
        (text("steps: 6, mode: async"), "each would wait until an asynchronous one is written"),
        (text(train="    iterations: 2\n"), "steps says how many are run"),
        (text(more="clock: real\n"), "with the virtual clock only"),
        (text(step="- {collective: barrier}\n"), "has one step of the workload"),
        (text(more="inject: [{fault: worker_frozen, on: 'nic:0'}]\n"), "its launcher would wait, too"),
    ],
)
def test_mistakes(told: str, what: str) -> None:
    with pytest.raises(InputError) as error:
        loads(told)
    assert any(what in one.what and one.hint for one in [error.value, *error.value.also]), error.value.what
