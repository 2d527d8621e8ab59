"""From a training step of an experiment to steps of the plan: its graph of tasks, and what its figures are held to.

A step that says `scale` becomes one or two smaller ones, with fewer layers, or 1/s of everything.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from testbed.base.errors import InputError
from testbed.experiment.scale import scaled_down, shrunk
from testbed.experiment.training import layout_of, settings_of, training_of
from testbed.plan.expected import expected
from testbed.plan.tasks import planned
from workloads.steps import checkpoint
from workloads.steps.build import step_graph
from workloads.tasks.oracle import step_ns
from workloads.tasks.task import Collective, Send

if TYPE_CHECKING:
    from testbed.experiment import CollectiveStep, Experiment
    from testbed.experiment.steps.train import Checkpoint, Train
    from testbed.plan.choose import Chooser
    from topologies import Fabric
    from workloads.steps.plan.parallel import Layout
    from workloads.steps.plan.training import Training
    from workloads.tasks.graph import Graph


def training_steps(
    train: Train,
    experiment: Experiment,
    fabric: Fabric,
    alone: Callable[[CollectiveStep, Experiment], Mapping[str, Any]],
    chooser: Callable[[], Chooser],
) -> list[dict[str, Any]]:
    """The steps of the plan; `alone` and `chooser` as for any step of tasks."""
    whole = training_of(train)
    layout = layout_of(train, fabric)
    by = train.scale.by if train.scale else 1
    small = scaled_down(experiment)

    def planned_on(one: Experiment, graph: Graph, t: Training) -> dict[str, Any]:
        step = planned(
            graph, one, fabric, lambda step: alone(step, one), chooser,
            iterations=train.iterations, warmup=train.warmup, name=name_of(t, by),
        )  # fmt: skip
        return step | {"about_step": {"tokens": t.step_tokens, "ideal_ns": ideal_ns(t)}}

    def made(t: Training) -> tuple[Graph, dict[str, Any]]:
        graph = step_graph(t, layout, settings_of(train))
        return graph, planned_on(experiment, graph, t)

    if train.checkpoint is not None:
        return _checkpointed(
            train.checkpoint, whole, layout, made(whole), lambda g: planned_on(experiment, g, whole), experiment.seed
        )
    if train.scale is None:
        return [made(whole)[1]]
    graph, step = made(whole)
    times = [step_ns(expected(graph, step, experiment, fabric))]
    steps: list[dict[str, Any]] = []
    sizes = [*(train.scale.layers or []), *([] if train.scale.layers else [whole.model.layers])]
    for layers in reversed(sizes):
        t = replace(whole, model=replace(whole.model, layers=layers))
        if layers != whole.model.layers:
            graph, step = made(t)
        if by > 1:
            graph = shrunk(graph, by, step)
            _large_enough(graph, experiment, by)
            step = planned_on(small, graph, t)
        times.insert(0, step_ns(expected(graph, step, small, fabric)))
        steps.insert(0, step)
    about = {"tokens": whole.step_tokens, "ideal_ns": ideal_ns(whole)}
    if by > 1:  # its time is no step's: no MFU
        for one in steps:
            one["about_step"].clear()
    steps[-1]["about_step"]["scale"] = {
        "layers": [*sizes, *([whole.model.layers] if train.scale.layers else [])],
        "by": by,
        "expected_ns": times,
        "whole": about,
    }
    return steps


def _checkpointed(
    told: Checkpoint,
    t: Training,
    layout: Layout,
    made: tuple[Graph, dict[str, Any]],
    planned_on: Callable[[Graph], dict[str, Any]],
    seed: int,
) -> list[dict[str, Any]]:
    """The step, the step with a checkpoint, and the checkpoint read back.

    For a run of many `steps`: how it is read back, which is done after failures only, and the steps.
    """
    graph, plain = made
    its = checkpoint.Checkpoint(tuple(told.to), told.disk, told.copy_rate if told.mode == "async" else None)
    if told.steps is not None:
        read = planned_on(checkpoint.restored(t, layout, its, told.restart))
        whole = planned_on(checkpoint.with_checkpoint(graph, t, layout, its, told.every))
        going_on = {key: getattr(told, key) for key in ("steps", "every", "restart", "monitor", "restarts", "failures")}
        going_on |= {"between": told.mtbf * 3600e9 / (told.gpus or t.parallel.ranks), "seed": seed}
        going_on |= {"training": sorted(layout.ranks.values())}
        return [
            {**read, "name": f"{plain['name']}, restored", "iterations": 0, "about_step": {}},
            {**whole, "iterations": told.steps, "about_step": {**whole["about_step"], "going_on": going_on}},
        ]
    steps = [plain]
    graphs = {
        f", {told.mode} checkpoint": checkpoint.with_checkpoint(graph, t, layout, its),
        ", restored": checkpoint.restored(t, layout, its),
    }
    for name, one in graphs.items():
        step = planned_on(one)
        steps.append({**step, "name": f"{step['name']}{name}", "about_step": {}})
    nbytes = max(checkpoint.written_bytes(t, stage) for stage in range(t.parallel.pipeline))
    plain["about_step"]["checkpoint"] = {
        "mode": told.mode,
        "every": told.every,
        "bytes": nbytes,
        "copy_ns": 1e9 * nbytes / told.copy_rate,
        "restart_ns": told.restart,
        "mtbf_ns": told.mtbf * 3600e9,
        "gpus": told.gpus or t.parallel.ranks,
        "power_w": told.power,
        "price": told.price,
    }
    return steps


LEAST_PACKETS = 64
"""Of a group's largest message, after scaling: below that a packet's own time counts too much."""


def _large_enough(graph: Graph, experiment: Experiment, by: int) -> None:
    """Raises InputError for a group whose messages are too small to tell of larger ones."""
    largest: dict[str, int] = {}
    for rank, its in graph.tasks.items():
        for task in its:
            if isinstance(task, Collective):
                part = task.size_bytes // len(graph.members(rank, task))
                largest[task.group] = max(largest.get(task.group, 0), part)
            elif isinstance(task, Send):
                largest[task.group] = max(largest.get(task.group, 0), task.size_bytes)
    mtu = experiment.fabric.nic.mtu
    for group, nbytes in largest.items():
        if nbytes < LEAST_PACKETS * mtu:
            most = by * nbytes // (LEAST_PACKETS * mtu)
            what = f"1/{by} of what group {group!r} sends at a time is {nbytes / mtu:.0f} packets at most"
            hint = f"by: {most} leaves {LEAST_PACKETS}" if most > 1 else "its messages are too small to be scaled"
            raise InputError(what, experiment.place("workload"), hint)


def ideal_ns(t: Training) -> float:
    """What the model's FLOPs take on all GPUs at their peak: the step of an MFU of 1."""
    return 1e9 * t.flops / (t.parallel.ranks * t.gpu.flops)


def name_of(t: Training, by: int = 1) -> str:
    """The plan in a few words, for tables: `train tp2 pp2 dp2, 1f1b`; and what it is a part of."""
    p = t.parallel
    sizes = {"tp": p.tensor, "cp": p.context, "pp": p.pipeline, "dp": p.data, "ep": p.expert}
    words = ["train", *(f"{name}{n}" for name, n in sizes.items() if n > 1)]
    schedule = [t.schedule] if p.pipeline > 1 else []
    shard = [t.shard] if t.shard != "none" else []
    return ", ".join([" ".join(words), *schedule, *shard, *([f"1/{by} of it"] if by > 1 else [])])
