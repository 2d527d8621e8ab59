"""The times of steps that are made of tasks: training, serving, traces, plain graphs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from testbed.base.errors import InputError
from testbed.plan.expected import expected
from testbed.plan.steps.kinds import graph_of, steps_of
from testbed.predict.figure import LONGEST_PATH, MESSAGES, Figure
from testbed.predict.large import of_too_many
from workloads.base.entry import NoModel
from workloads.registry import find
from workloads.tasks.oracle import step_ns
from workloads.tasks.replay import Tasks

if TYPE_CHECKING:
    from testbed.plan.steps.planned import PlannedTasks
    from testbed.predict.ground import Ground, Turn
    from workloads.times.buffers import Buffers
    from workloads.times.ways import Ways


def task_figures(ground: Ground, turn: Turn, planned: Sequence[PlannedTasks]) -> Iterator[Figure]:
    """The lines of the steps of the plan that a step of the workload becomes.

    Of a training step that is made smaller there is one more: the whole one.
    """
    buffers = ground.buffers(ground.large.class_of(turn.step))
    scale = planned[-1].about_step.get("scale")
    tasks = [Tasks(step.program, find, ground.chooser.seed) for step in planned]
    ways = [ground.chooser.ways(range(ground.ranks), numbers=ground.connected.tasks(one)) for one in tasks]
    for k, step in enumerate(planned):
        if scale:
            time_ns, how, name = scale["expected_ns"][k], LONGEST_PATH, f"{step.name}, {scale['layers'][k]} layers"
        else:
            (time_ns, how), name = _time(ground, turn, step, tasks[k], ways[k], buffers), step.name
        yield Figure(
            step=turn.number + k,
            name=name,
            algorithm="-",
            ranks=len(step.ranks),
            size_bytes=None,
            time_ns=time_ns,
            how=how,
            times=step.iterations + step.warmup,
            about=step.about_step,
            holds_up=buffers.holds_up,
            paused=buffers.take_paused(looked=how == MESSAGES),
        )
    if scale:
        whole = _whole(ground, turn)
        name = f"train, the whole of {scale['layers'][-1]} layers"
        number, ranks = turn.number + len(planned) - 1, len(planned[-1].ranks)
        yield replace(whole, step=number, name=name, ranks=ranks, times=0, about=scale["whole"], no_model=())


def _time(
    ground: Ground, turn: Turn, step: PlannedTasks, tasks: Tasks, ways: Ways, buffers: Buffers
) -> tuple[float, str]:
    """Every message followed where tasks share cables, or flows a choice of spines; else the exact longest path."""
    if (serving := step.about_step.get("serving")) is not None:
        return float(serving["expected_ns"]), LONGEST_PATH
    if tasks.followable and (ground.chooser.chooses or tasks.share(ways)):
        try:
            followed = tasks.replayed(ways, ground.chooser.costs, buffers)
        except NoModel as none:
            raise InputError(none.what, turn.place, none.hint) from None
        if followed is not None:
            return followed, MESSAGES
        if large := of_too_many(ground.large, turn, sure=True):
            return large.time_ns, large.how
    graph = graph_of(turn.step, ground.planner)
    assert graph is not None
    return step_ns(expected(graph, step.program, ground.chooser)), LONGEST_PATH


def _whole(ground: Ground, turn: Turn) -> Figure:
    """Of a step that is made smaller, without that: as if it was the first of the file."""
    first = replace(turn, step=turn.step.whole(), number=0, job=0)
    if (figure := of_too_many(ground.large, first)) is None:
        planned: Any = steps_of(first.step, ground.planner)  # a graph: of tasks
        (figure,) = task_figures(ground.anew(), first, planned)
    return figure
