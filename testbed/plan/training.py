"""From a training step of an experiment to steps of the plan: its graph of tasks, and what its figures are held to.

A step that says `scale` becomes two, with fewer layers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from testbed.experiment.training import layout_of, settings_of, training_of
from testbed.plan.expected import expected
from testbed.plan.tasks import planned
from workloads.steps.build import step_graph
from workloads.tasks.oracle import step_ns

if TYPE_CHECKING:
    from testbed.experiment import CollectiveStep, Experiment
    from testbed.experiment.steps.train import Train
    from testbed.plan.choose import Chooser
    from topologies import Fabric
    from workloads.steps.plan.training import Training
    from workloads.tasks.graph import Graph


def training_steps(
    train: Train,
    experiment: Experiment,
    fabric: Fabric,
    alone: Callable[[CollectiveStep], Mapping[str, Any]],
    chooser: Callable[[], Chooser],
) -> list[dict[str, Any]]:
    """The steps of the plan; `alone` and `chooser` as for any step of tasks."""
    whole = training_of(train)
    layout = layout_of(train, fabric)

    def made(t: Training) -> tuple[Graph, dict[str, Any]]:
        graph = step_graph(t, layout, settings_of(train))
        step = planned(
            graph, experiment, fabric, alone, chooser,
            iterations=train.iterations, warmup=train.warmup, name=name_of(t),
        )  # fmt: skip
        return graph, step | {"about_step": {"tokens": t.step_tokens, "ideal_ns": ideal_ns(t)}}

    if train.scale is None:
        return [made(whole)[1]]
    steps, times = [], []
    for layers in (*train.scale.layers, whole.model.layers):
        graph, step = made(replace(whole, model=replace(whole.model, layers=layers)))
        times.append(step_ns(expected(graph, step, experiment, fabric)))
        steps.append(step)
    few, more = train.scale.layers
    scale = {"layers": [few, more, whole.model.layers], "expected_ns": times, "whole": steps[2]["about_step"]}
    steps[1]["about_step"]["scale"] = scale
    return steps[:2]


def ideal_ns(t: Training) -> float:
    """What the model's FLOPs take on all GPUs at their peak: the step of an MFU of 1."""
    return 1e9 * t.flops / (t.parallel.ranks * t.gpu.flops)


def name_of(t: Training) -> str:
    """The plan in a few words, for tables: `train tp2 pp2 dp2, 1f1b`."""
    p = t.parallel
    sizes = {"tp": p.tensor, "cp": p.context, "pp": p.pipeline, "dp": p.data, "ep": p.expert}
    words = ["train", *(f"{name}{n}" for name, n in sizes.items() if n > 1)]
    schedule = [t.schedule] if p.pipeline > 1 else []
    shard = [t.shard] if t.shard != "none" else []
    return ", ".join([" ".join(words), *schedule, *shard])
