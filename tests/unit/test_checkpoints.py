"""What checkpoints cost: formulas against their papers' figures and against drawn failures; bytes, orders, mistakes."""

from __future__ import annotations

import random

import pytest

from results.figures.checkpoints import account, accounts, daly_ns, slowdown, young_ns
from results.figures.timeline import steps
from testbed.base.errors import InputError
from testbed.experiment import loads
from testbed.experiment.steps.training import TrainStep, layout_of, settings_of, training_of
from testbed.plan.steps.plan import plan
from workloads.steps.build import step_graph
from workloads.steps.checkpoint import COPY, Checkpoint, restored, restored_bytes, with_checkpoint, written_bytes
from workloads.tasks.oracle import oracle
from workloads.tasks.task import Compute, Send, Task

MINUTE, HOUR = 60.0, 3600.0


@pytest.mark.parametrize(("between", "best"), [(24 * HOUR, 117), (6 * HOUR, 57), (HOUR / 4, 9.1)])
def test_daly_has_his_own_figures(between: float, best: float) -> None:
    """Daly (2006), figures 3 to 5: dumps of 5 min."""
    assert daly_ns(5 * MINUTE, between) / MINUTE == pytest.approx(best, rel=0.01)


def test_young_is_where_his_cost_is_least() -> None:
    """Young (1974): a checkpoint's time and, at a failure, half an interval: d / t + t / 2 M."""
    d, m = 5.0, 9000.0
    cost = {t / 10: d / (t / 10) + t / 10 / (2 * m) for t in range(10, 10_000)}
    assert young_ns(d, m) == pytest.approx(min(cost, key=lambda t: cost[t]), rel=1e-3)


def test_daly_is_near_where_the_time_is_least() -> None:
    d, m, r = 5.0, 400.0, 10.0
    best = min((slowdown(t / 10, d, r, m), t / 10) for t in range(10, 5000))[1]
    assert daly_ns(d, m) == pytest.approx(best, rel=0.02)


def test_the_expected_time_is_that_of_drawn_failures() -> None:
    """A segment, or its way back, is begun again until no failure comes in it."""
    dice, tau, pause, back, between = random.Random(3), 60.0, 5.0, 10.0, 100.0
    total, count = 0.0, 20_000
    for _ in range(count):
        left = tau + pause
        while (came := dice.expovariate(1 / between)) < left:
            total, left = total + came, back + tau + pause
        total += left
    assert total / (count * tau) == pytest.approx(slowdown(tau, pause, back, between), rel=0.02)


STEP = (
    "train: {model: {layers: 2, hidden: 64, heads: 4, seq: 64}, gpu: {flops: 1T, hbm: 1TBps}, parallel: {data: 2, "
    "pipeline: 2}, batch: {count: 2}, checkpoint: {to: %s, every: 5%s}%s}"
)


def text(to: str = "[4]", more: str = "", also: str = "", hosts: int = 5) -> str:
    return f"name: t\nfabric: {{topology: {{star: {{hosts: {hosts}}}}}}}\nworkload:\n- {STEP % (to, more, also)}\n"


def parts(told: str) -> tuple[TrainStep, object]:
    experiment = loads(told)
    step = experiment.workload[0]
    assert isinstance(step, TrainStep)
    return step, experiment.build_fabric()


def test_each_byte_is_written_once_and_read_back_by_all_who_hold_it() -> None:
    """Two bytes of a bfloat16 and twelve of Adam for each parameter of a stage; two ranks share them out."""
    step, fabric = parts(text())
    t = training_of(step.train)
    stage = 4 * 64 * 64 + 2 * 4 * 64 * 64 + 2 * 64  # attention, MLP, two norms
    assert [written_bytes(t, k) for k in (0, 1)] == [14 * stage // 2] * 2
    assert restored_bytes(t, 0) == 14 * stage
    layout = layout_of(step.train, fabric)  # type: ignore[arg-type]
    assert sorted(layout.ranks.values()) == [0, 1, 2, 3]
    graph = step_graph(t, layout, settings_of(step.train))
    for copy in (None, 1e9):
        its = Checkpoint((4,), disk=1e9, copy=copy)
        found = with_checkpoint(graph, t, layout, its)
        sent = [task for own in found.tasks.values() for task in own if isinstance(task, Send) and task.peer == 4]
        assert sum(task.size_bytes for task in sent) == 2 * 14 * stage
    back = restored(t, layout, Checkpoint((4,)))
    assert sum(task.size_bytes for task in back.tasks[4] if isinstance(task, Send)) == 4 * 14 * stage


def test_a_synchronous_one_comes_behind_the_step_and_an_asynchronous_one_beside_it() -> None:
    step, fabric = parts(text())
    t, layout = training_of(step.train), layout_of(step.train, fabric)  # type: ignore[arg-type]
    graph = step_graph(t, layout, settings_of(step.train))

    def took(_: int, task: Task) -> float:
        return task.duration_ns if isinstance(task, Compute) else 1000.0

    plain = max(end for _, end in oracle(graph, took).values())
    behind = oracle(with_checkpoint(graph, t, layout, Checkpoint((4,))), took)
    assert min(start for (_, name), (start, _) in behind.items() if name == "checkpoint") >= 1000
    assert max(end for _, end in behind.values()) == pytest.approx(plain + 1000)
    nbytes = written_bytes(t, 0)
    beside = oracle(with_checkpoint(graph, t, layout, Checkpoint((4,), copy=nbytes / 5e-6)), took)  # in 5 us
    trained = max(end for (rank, name), (_, end) in beside.items() if name != "checkpoint" and rank != 4)
    assert trained == pytest.approx(plain + 5000) and beside[0, COPY] == (0, 5000)
    assert beside[0, "checkpoint"][0] == 5000


@pytest.mark.parametrize(
    ("more", "mode", "gpus"),
    [("", "sync", 4), (", mode: async, gpus: 99", "async", 99)],
)
def test_a_step_with_a_checkpoint_is_run_without_it_with_it_and_read_back(more: str, mode: str, gpus: int) -> None:
    """Each rank writes its share of a stage, and copies it at the rate of its GPU's memory if it goes on meanwhile."""
    rates = ", copy_rate: 1GBps, restart: 3s, mtbf: 2, power: 700, price: 1.5"
    plain, checkpointed, back = plan(loads(text(more=rates + more))).steps
    assert [checkpointed.name, back.name] == [f"{plain.name}, {mode} checkpoint", f"{plain.name}, restored"]
    assert checkpointed.about_step == back.about_step == {}
    step, _ = parts(text())
    nbytes = written_bytes(training_of(step.train), 0)
    assert plain.about_step["checkpoint"] == {
        "mode": mode, "every": 5, "bytes": nbytes, "copy_ns": pytest.approx(nbytes), "restart_ns": 3e9,
        "mtbf_ns": 2 * 3600e9, "gpus": gpus, "power_w": 700, "price": 1.5,
    }  # fmt: skip


def row(step: int, rank: int, task: str, kind: str, start: float, end: float) -> dict[str, object]:
    return {
        "step": step, "iteration": 0, "rank": rank, "stream": "s", "task": task, "operation": "compute", "kind": kind,
        "group": "", "size_bytes": 0, "peer": None, "start_ns": start, "end_ns": end,
    }  # fmt: skip


def test_the_account_of_measured_steps() -> None:
    rows = [
        row(0, 0, "f", "forward", 0, 100), row(1, 0, "f", "forward", 0, 100),
        row(1, 0, "c", "checkpoint", 100, 150), row(2, 0, "r", "checkpoint", 0, 30),
    ]  # fmt: skip
    told = {
        "mode": "sync", "every": 4, "bytes": 8, "copy_ns": 0.0, "restart_ns": 20.0, "mtbf_ns": 80_000.0, "gpus": 8,
        "power_w": 1000.0, "price": 2.0,
    }  # fmt: skip
    ((number, its),) = accounts([{"checkpoint": told}, {}, {}], steps(rows))
    assert (number, its.step_ns, its.pause_ns, its.restore_ns, its.between_failures_ns) == (0, 100, 50, 30, 10_000)
    assert its.goodput == pytest.approx(1 / slowdown(400, 50, 50, 10_000))
    assert its.young_steps == pytest.approx(10) and its.best_steps in (9, 10)
    assert its.lost_per_failure_ns == (400 + 50) / 2 + 50
    assert its.lost_gpu_hours == pytest.approx((1 - its.goodput) * 8 * 24) and its.stalled == 0
    assert (
        its.stalled_gpu_hours == 0 and its.lost_money == 2 * its.lost_gpu_hours and its.lost_kwh == its.lost_gpu_hours
    )
    rows[2:3] = [row(1, 0, "k", "checkpoint_copy", 100, 110), row(1, 0, "c", "checkpoint", 10, 250)]
    measured = [[one] for one in steps(rows)]
    beside = account({**told, "mode": "async", "copy_ns": 10.0}, measured)
    assert (beside.pause_ns, beside.least_steps, beside.written_ns) == (10, 3, 250)
    assert beside.lost_per_failure_ns == (4 * 100 + 10) / 2 + 20 + 30 + 250  # half an interval, and the way back


def test_one_cannot_begin_before_the_last_is_written() -> None:
    """Asked for after each step, and written in three: what comes of it is what comes of every third."""
    rows = [
        row(0, 0, "f", "forward", 0, 100), row(1, 0, "f", "forward", 0, 100),
        row(1, 0, "k", "checkpoint_copy", 100, 110), row(1, 0, "c", "checkpoint", 10, 250),
        row(2, 0, "r", "checkpoint", 0, 30),
    ]  # fmt: skip
    told = {
        "mode": "async", "bytes": 8, "copy_ns": 10.0, "restart_ns": 20.0, "mtbf_ns": 80_000.0, "gpus": 8,
        "power_w": 1000.0, "price": 2.0,
    }  # fmt: skip
    measured = [[one] for one in steps(rows)]
    often, third = account({**told, "every": 1}, measured), account({**told, "every": 3}, measured)
    assert often.every == 1 and often.least_steps == 3
    assert (often.goodput, often.lost_per_failure_ns) == (third.goodput, third.lost_per_failure_ns)
    assert often.goodput <= often.best_goodput


def test_a_failure_in_a_lifetime_costs_next_to_nothing() -> None:
    """The sum of what is expected is not lost in rounding: it is 1 + pause / tau."""
    assert slowdown(1.0, 1e-3, 0.0, 1e18) == pytest.approx(1.001, rel=1e-12)


def test_what_is_stalled_is_of_what_is_not_lost() -> None:
    """Half of each step a rank waits, and most work is lost: together no more than all hours."""
    rows = [
        row(0, 0, "f", "forward", 0, 50), row(0, 1, "f", "forward", 50, 100), row(1, 0, "f", "forward", 0, 50),
        row(1, 1, "f", "forward", 50, 100), row(1, 0, "c", "checkpoint", 100, 150), row(2, 0, "r", "checkpoint", 0, 30),
    ]  # fmt: skip
    told = {
        "mode": "sync", "every": 40, "bytes": 8, "copy_ns": 0.0, "restart_ns": 20.0, "mtbf_ns": 8000.0, "gpus": 8,
        "power_w": 1000.0, "price": 2.0,
    }  # fmt: skip
    its = account(told, [[one] for one in steps(rows)])
    assert its.stalled == 0.5 and its.goodput < 0.2
    assert its.stalled_gpu_hours == pytest.approx(0.5 * its.goodput * 8 * 24)
    assert its.stalled_kwh == its.stalled_gpu_hours and its.stalled_money == 2 * its.stalled_gpu_hours


@pytest.mark.parametrize(
    ("told", "what", "hint"),
    [
        (text("[0]"), "storage is whole places of ranks", "to: [4]"),
        (text("[3, 4]", hosts=5), "are 4 ranks, and there are 3", "number of ranks"),
        (text(also=", scale: {by: 4}"), "a checkpoint is of the whole model", "leave scale or checkpoint out"),
        (text(more=", mode: later"), "unknown mode 'later'", "sync"),
    ],
)
def test_mistakes(told: str, what: str, hint: str) -> None:
    with pytest.raises(InputError) as error:
        loads(told)
    said = [error.value, *error.value.also]
    assert any(what in one.what and hint in (one.hint or "") for one in said), [one.what for one in said]
