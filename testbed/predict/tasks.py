"""The times of steps that are made of tasks: training, serving, traces, plain graphs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from testbed.plan.expected import expected
from testbed.plan.steps.kinds import graph_of
from testbed.predict.connected import Connected
from testbed.predict.figure import LONGEST_PATH, MESSAGES, Figure
from testbed.predict.large import of_too_many
from workloads.registry import find
from workloads.tasks.oracle import step_ns
from workloads.tasks.replay import Tasks

if TYPE_CHECKING:
    from testbed.experiment import Experiment
    from testbed.experiment.steps.step import Step
    from testbed.plan.choose import Chooser
    from testbed.plan.steps.planned import PlannedTasks
    from topologies.ranks.hops import Hop
    from workloads.times.buffers import Buffers
    from workloads.times.ways import Ways


def task_figures(
    experiment: Experiment,
    chooser: Chooser,
    connected: Connected,
    buffers: Buffers,
    step: Step,
    planned: Sequence[PlannedTasks],
    number: int,
    job: int,
    place: str,
) -> Iterator[Figure]:
    """The lines of the steps of the plan that a step of the workload becomes.

    Of a training step that is made smaller there is one more: the whole one.
    """
    scale = planned[-1].about_step.get("scale")
    tasks = [Tasks(told.program, find, experiment.seed) for told in planned]
    ways = [chooser.ways(range(experiment.build_fabric().ranks), numbers=connected.tasks(its)) for its in tasks]
    if scale:
        found: list[tuple[float, str, tuple[Hop, ...] | None]] = [
            (time_ns, LONGEST_PATH, buffers.take_paused(looked=False)) for time_ns in scale["expected_ns"]
        ]
        found[-1] = _whole(experiment, chooser, buffers, step, place)
    else:
        found = [
            (time_ns, how, buffers.take_paused(looked=how == MESSAGES))
            for told, its, way in zip(planned, tasks, ways, strict=True)
            for time_ns, how in (_time(experiment, chooser, buffers, step, told, its, way, place),)
        ]
    names = [told.name for told in planned]
    about = [told.about_step for told in planned]
    if scale:
        names = [f"{name}, {layers} layers" for name, layers in zip(names, scale["layers"], strict=False)]
        names.append(f"train, the whole of {scale['layers'][-1]} layers")
        about.append(scale["whole"])
    for k, (name, its, (time_ns, how, paused)) in enumerate(zip(names, about, found, strict=True)):
        ranks = len(planned[min(k, len(planned) - 1)].ranks)
        yield Figure(
            step=number + min(k, len(planned) - 1),
            name=name,
            algorithm="-",
            ranks=ranks,
            size_bytes=None,
            time_ns=time_ns,
            how=how,
            about=its,
            paused=paused,
        )


def _time(
    experiment: Experiment,
    chooser: Chooser,
    buffers: Buffers,
    step: Step,
    told: PlannedTasks,
    tasks: Tasks,
    ways: Ways,
    place: str,
) -> tuple[float, str]:
    """Every message followed where tasks share cables, or flows a choice of spines; else the exact longest path."""
    if (serving := told.about_step.get("serving")) is not None:
        return float(serving["expected_ns"]), LONGEST_PATH
    graph = graph_of(step, experiment)
    assert graph is not None
    if tasks.followable and (chooser.chooses or tasks.share(ways)):
        followed = tasks.replayed(ways, chooser.costs, buffers)
        if followed is not None:
            return followed, MESSAGES
        if large := of_too_many(experiment, step, 0, place, sure=True):
            return large.time_ns, large.how
    return step_ns(expected(graph, told.program, experiment, experiment.build_fabric())), LONGEST_PATH


def _whole(
    experiment: Experiment, chooser: Chooser, buffers: Buffers, step: Step, place: str
) -> tuple[float, str, tuple[Hop, ...] | None]:
    """Of a step that is made smaller, without that: as if it was the first of the file."""
    from testbed.plan.steps.plan import plan

    whole = step.whole()
    if (its := of_too_many(experiment, whole, 0, place)) is None:
        planned: Any = plan(experiment.model_copy(update={"workload": [whole]})).steps  # a graph: of tasks
        connected = Connected(chooser, experiment.seed)
        (its,) = task_figures(experiment, chooser, connected, buffers, whole, planned, 0, 0, place)
    return its.time_ns, its.how, its.paused
