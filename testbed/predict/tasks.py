"""The times of steps that are made of tasks: training, serving, traces, plain graphs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from testbed.base.errors import InputError
from testbed.experiment.training import layout_of, settings_of, training_of
from testbed.plan.expected import expected
from testbed.predict.figure import LONGEST_PATH, Figure
from workloads.steps.build import step_graph
from workloads.tasks.oracle import step_ns

if TYPE_CHECKING:
    from testbed.experiment import Experiment
    from testbed.experiment.steps.steps import Step
    from workloads.tasks.graph import Graph


def task_figures(
    experiment: Experiment, step: Step, planned: Sequence[Mapping[str, Any]], number: int, place: str
) -> Iterator[Figure]:
    """The lines of the steps of the plan that a step of the workload becomes.

    Of a training step that is made smaller there is one more: the whole one.
    """
    scale = planned[-1].get("about_step", {}).get("scale")
    times = scale["expected_ns"] if scale else [_time(experiment, step, told, place) for told in planned]
    names = [told["name"] for told in planned]
    if scale:
        names = [f"{name}, {layers} layers" for name, layers in zip(names, scale["layers"], strict=False)]
        names.append(f"train, the whole of {scale['layers'][-1]} layers")
    for k, (name, time_ns) in enumerate(zip(names, times, strict=True)):
        ranks = len(planned[min(k, len(planned) - 1)]["ranks"])
        yield Figure(
            step=number + min(k, len(planned) - 1),
            name=name,
            algorithm="-",
            ranks=ranks,
            size_bytes=None,
            time_ns=time_ns,
            how=LONGEST_PATH,
        )


def _time(experiment: Experiment, step: Step, told: Mapping[str, Any], place: str) -> float:
    serving = told.get("about_step", {}).get("serving")
    if serving is not None:
        return float(serving["expected_ns"])
    return step_ns(expected(_graph(experiment, step, place), told, experiment, experiment.build_fabric()))


def _graph(experiment: Experiment, step: Step, place: str) -> Graph:
    fabric = experiment.build_fabric()
    if step.kind == "train":
        if step.train.checkpoint is not None:
            raise InputError("there is no model of disks", f"{place}.train.checkpoint", "leave it out, or run it")
        return step_graph(training_of(step.train), layout_of(step.train, fabric), settings_of(step.train))
    if step.kind == "tasks":
        return step.tasks.graph(fabric.ranks)
    assert step.kind in ("chakra", "aicb")
    return step.graph(fabric.ranks)
