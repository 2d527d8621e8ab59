"""From a script of PyTorch to steps of the plan: what its ranks did when it was run by itself (graphs.py)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from testbed.base.errors import InputError
from testbed.experiment import task_checks
from testbed.experiment.training import gigabytes, gpu_of
from testbed.plan.graphs import place_of, script_of
from testbed.plan.tasks import planned
from testbed.plan.training import told_memory
from workloads.tasks.graph import Graph

if TYPE_CHECKING:
    from testbed.experiment import CollectiveStep, Experiment
    from testbed.experiment.steps.traces import TorchStep
    from testbed.plan.choose import Chooser
    from topologies import Fabric
    from workloads.torch.launch import Recorded
    from workloads.torch.steps import Step


def script_steps(
    told: TorchStep,
    experiment: Experiment,
    fabric: Fabric,
    alone: Callable[[CollectiveStep], Mapping[str, Any]],
    chooser: Callable[[], Chooser],
) -> list[dict[str, Any]]:
    """The steps of the plan: the setup, then steps that are alike as iterations of one; `alone` as for tasks."""
    recorded, found = script_of(told, experiment, fabric)
    _check_memory(recorded, told, experiment)
    made = []
    for step in found:
        _check(step.graph, told, experiment, fabric)
        name = f"{Path(told.torch).stem}, {step.name}"
        its = planned(step.graph, experiment, fabric, alone, chooser, iterations=step.times, warmup=0, name=name)
        ideal = {"ideal_ns": step.ideal_ns} if step.training and step.ideal_ns else {}
        made.append(its | {"about_step": ideal | {"memory": {"of": step.name, **told_memory(_held(recorded, step))}}})
    made[0]["printed"] = list(recorded.printed)
    return made


def _held(recorded: Recorded, step: Step | None = None) -> dict[int, dict[str, int]]:
    """What each rank has when it has most, in these steps or the whole script, and what of it optimizers had then."""
    of = slice(step.part, step.part + step.times) if step else slice(None)
    held = {}
    for rank, one in enumerate(recorded.ranks):
        parts = one["memory"][of]
        held[rank] = {**parts[-1], "peak": max(part["peak"] for part in parts)}
    return held


def _check_memory(recorded: Recorded, told: TorchStep, experiment: Experiment) -> None:
    """Raises InputError if a rank has more at a time than its GPU has."""
    its = told_memory(_held(recorded))
    room = gpu_of(told.gpu, "float32", any_type=True).memory
    if room is not None and its["peak"] > room:
        parts = ", ".join(
            f"{key} {gigabytes(its[key])}" for key in ("parameters", "gradients", "optimizer") if key in its
        )
        what = (
            f"the script does not fit: its rank {its['rank']} has {gigabytes(its['peak'])} at a time, "
            f"{gigabytes(its['peak'] - int(room))} more than the GPU's {gigabytes(int(room))}"
            + (f" (of it {parts})" if parts else "")
        )
        hint = "shard more (FSDP2), smaller batches, checkpointed activations, or a GPU with more memory"
        raise InputError(what, place_of(told, experiment, "gpu"), hint)


def _check(graph: Graph, told: TorchStep, experiment: Experiment, fabric: Fabric) -> None:
    for task, _, what, hint in task_checks.collectives(graph, fabric):
        raise InputError(f"task {task.id!r} of the script: {what}", place_of(told, experiment), hint)
