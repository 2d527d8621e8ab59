"""From a training step of an experiment to steps of the plan: its graph of tasks, and what its figures are held to.

A step that says `scale` becomes one or two smaller ones, with fewer layers, or 1/s of everything.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from testbed.experiment.scale import scaled_down, shrunk
from testbed.experiment.steps.training import layout_of, settings_of, training_of
from testbed.plan.expected import expected
from testbed.plan.steps.planned import Planned, PlannedTasks
from testbed.plan.steps.planner import Planner
from testbed.plan.steps.tasks import planned
from workloads.steps import checkpoint
from workloads.steps.build import step_graph
from workloads.steps.memory import memory
from workloads.tasks.oracle import step_ns

if TYPE_CHECKING:
    from testbed.experiment.steps.train import Checkpoint
    from testbed.experiment.steps.training import TrainStep
    from workloads.steps.plan.parallel import Layout
    from workloads.steps.plan.training import Training
    from workloads.tasks.graph import Graph


def training_graph(step: TrainStep, planner: Planner) -> Graph:
    """Of the whole model."""
    return step_graph(training_of(step.train), layout_of(step.train, planner.fabric), settings_of(step.train))


def training_steps(told: TrainStep, planner: Planner) -> list[Planned]:
    """One; several with a checkpoint, or if it is made smaller."""
    train, seed = told.train, planner.experiment.seed
    whole = training_of(train)
    layout = layout_of(train, planner.fabric)
    by = train.scale.by if train.scale else 1
    small = planner if by == 1 else Planner(scaled_down(planner.experiment))

    def planned_on(planner: Planner, graph: Graph, t: Training) -> PlannedTasks:
        its: dict[str, Any] = {"iterations": train.iterations, "warmup": train.warmup, "name": name_of(t, by)}
        step = planned(graph, planner, **its, above=told.transport)
        return replace(step, about_step=about(t, layout))

    def made(t: Training) -> tuple[Graph, PlannedTasks]:
        graph = step_graph(t, layout, settings_of(train))
        return graph, planned_on(planner, graph, t)

    if train.checkpoint is not None:
        return _checkpointed(
            train.checkpoint, whole, layout, made(whole), lambda g: planned_on(planner, g, whole), seed
        )
    if train.scale is None:
        return [made(whole)[1]]
    graph, step = made(whole)
    times = [step_ns(expected(graph, step.program, planner.chooser))]
    steps: list[PlannedTasks] = []
    sizes = [*(train.scale.layers or []), *([] if train.scale.layers else [whole.model.layers])]
    for layers in reversed(sizes):
        t = replace(whole, model=replace(whole.model, layers=layers))
        if layers != whole.model.layers:
            graph, step = made(t)
        if by > 1:
            graph = shrunk(graph, by, step.program)
            step = planned_on(small, graph, t)
        times.insert(0, step_ns(expected(graph, step.program, small.chooser)))
        steps.insert(0, step)
    # Nobody asks what a part of the model would need; of 1/s no time is a step's: no MFU
    steps = [replace(one, about_step={} if by > 1 else _without_memory(one.about_step)) for one in steps]
    scale = {
        "layers": [*sizes, *([whole.model.layers] if train.scale.layers else [])],
        "by": by,
        "expected_ns": times,
        "whole": about(whole, layout),
    }
    steps[-1] = replace(steps[-1], about_step={**steps[-1].about_step, "scale": scale})
    return [*steps]


def _without_memory(told: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in told.items() if key != "memory"}


def about(t: Training, layout: Layout) -> dict[str, Any]:
    """What a step's figures need: tokens, the time of an MFU of 1, and what ranks have in their memory."""
    stages: dict[int, list[int]] = {}
    for place, rank in layout.ranks.items():
        stages.setdefault(place.pipeline, []).append(rank)
    held = {rank: memory(t, stage) for stage, ranks in stages.items() for rank in ranks}
    told = told_memory({rank: {"peak": its.all, **asdict(its)} for rank, its in sorted(held.items())})
    return {"tokens": t.step_tokens, "ideal_ns": ideal_ns(t), "memory": told}


def told_memory(held: Mapping[int, Mapping[str, int]]) -> dict[str, Any]:
    """What the rank that holds most has, and what each has: of those that have the same once."""
    rank, most = max(held.items(), key=lambda one: (one[1]["peak"], -one[0]))
    alike: dict[tuple[tuple[str, int], ...], list[int]] = {}
    for number, its in held.items():
        alike.setdefault(tuple(its.items()), []).append(number)
    return {"rank": rank, **most, "each": [{"ranks": ranks, **dict(its)} for its, ranks in alike.items()]}


def _checkpointed(
    told: Checkpoint,
    t: Training,
    layout: Layout,
    made: tuple[Graph, PlannedTasks],
    planned_on: Callable[[Graph], PlannedTasks],
    seed: int,
) -> list[Planned]:
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
            replace(read, name=f"{plain.name}, restored", iterations=0, about_step={}),
            replace(whole, iterations=told.steps, about_step={**whole.about_step, "going_on": going_on}),
        ]
    graphs = {
        f", {told.mode} checkpoint": checkpoint.with_checkpoint(graph, t, layout, its),
        ", restored": checkpoint.restored(t, layout, its),
    }
    others = [(planned_on(one), name) for name, one in graphs.items()]
    nbytes = max(checkpoint.written_bytes(t, stage) for stage in range(t.parallel.pipeline))
    costs = {
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
    first = replace(plain, about_step={**plain.about_step, "checkpoint": costs})
    return [first, *(replace(step, name=f"{step.name}{name}", about_step={}) for step, name in others)]


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
