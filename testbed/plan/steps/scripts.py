"""From a script of PyTorch to steps of the plan: it is run by itself, and what its ranks did is planned."""

from __future__ import annotations

from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING

from testbed.base.errors import InputError, MachineError, UserError
from testbed.base.progress import Progress
from testbed.experiment.steps.graphs import collectives
from testbed.experiment.steps.training import Mistakes, gigabytes, gpu_of
from testbed.machine.scratch import scratch
from testbed.plan.steps.planned import Planned
from testbed.plan.steps.tasks import planned
from testbed.plan.steps.training import told_memory
from workloads.tasks.check import BadGraph
from workloads.tasks.graph import Graph, Settings
from workloads.torch.cut import BadScript
from workloads.torch.launch import NoTorch, Recorded, Script, ScriptFailed, record
from workloads.torch.steps import ScriptStep, steps

if TYPE_CHECKING:
    from testbed.experiment import Experiment
    from testbed.experiment.steps.traces import TorchStep
    from testbed.plan.steps.planner import Planner
    from topologies import Fabric

DOCS = "docs/pytorch.md says how a script becomes tasks"


def script_steps(told: TorchStep, planner: Planner) -> list[Planned]:
    """The setup, then steps that are alike as iterations of one."""
    experiment, fabric = planner.experiment, planner.fabric
    recorded, found = script_of(told, experiment, fabric)
    _check_memory(recorded, told, experiment)
    made: list[Planned] = []
    for step in found:
        _check(step.graph, told, experiment, fabric)
        name = f"{Path(told.torch).stem}, {step.name}"
        its = planned(step.graph, planner, iterations=step.times, warmup=0, name=name)
        ideal = {"ideal_ns": step.ideal_ns} if step.training and step.ideal_ns else {}
        about = ideal | {"memory": {"of": step.name, **told_memory(_held(recorded, step))}}
        made.append(replace(its, about_step=about, printed=() if made else list(recorded.printed)))
    return made


def _held(recorded: Recorded, step: ScriptStep | None = None) -> dict[int, dict[str, int]]:
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
    for task, _, what, hint in collectives(graph, fabric):
        raise InputError(f"task {task.id!r} of the script: {what}", place_of(told, experiment), hint)


def script_graph(told: TorchStep, planner: Planner) -> Graph:
    """The step that the script does most often."""
    _, steps = script_of(told, planner.experiment, planner.fabric)
    return max(steps, key=lambda step: (step.training, step.times)).graph


def script_of(told: TorchStep, experiment: Experiment, fabric: Fabric) -> tuple[Recorded, list[ScriptStep]]:
    """Runs a script, without a fabric, once for all that ask: what its ranks did and printed, and its steps."""
    ranks = told.ranks if told.ranks is not None else list(range(fabric.ranks))
    servers = tuple(fabric.nics[rank].name.partition(".")[0] for rank in ranks)
    script = Script(told.torch, tuple(map(str, told.args)), str(Path(told.torch).parent), servers, experiment.seed)
    gpus = cache(lambda dtype, multiplies: gpu_of(told.gpu, dtype, any_type=not multiplies))

    def time_ns(flops: int, nbytes: int, dtype: str) -> float:
        return gpus(dtype, flops > 0).time_ns(flops, nbytes)

    def peak_ns(flops: int, nbytes: int, dtype: str) -> float:
        return 1e9 * flops / gpus(dtype, flops > 0).flops

    stated = told.algorithm or told.traffic_class is not None
    settings = Settings(algorithms=told.algorithm, traffic_class=told.traffic_class) if stated else None
    try:
        recorded = _recorded(script)
        found = steps(recorded.ranks, ranks, time_ns, settings, peak_ns)
    except NoTorch as lacking:
        raise MachineError(lacking.what, place_of(told, experiment), lacking.hint) from None
    except ScriptFailed as failed:
        said = f"\n{failed.printed}" if failed.printed else ""
        raise UserError(f"{failed.what}{said}", failed.where or place_of(told, experiment), failed.hint) from None
    except Mistakes as wrong:
        (_, what, _), *_ = wrong.found
        hint = "write flops beside the preset: gpu: {preset: .., flops: ..}, of its data sheet"
        where = place_of(told, experiment, "gpu")
        raise InputError(f"the script multiplies matrices, and {what}", where, hint) from None
    except BadScript as bad:
        where = f"{told.torch}:{bad.line}" if bad.line else told.torch
        raise InputError(f"what the script's ranks do does not fit together: {bad}", where, bad.hint or DOCS) from None
    except BadGraph as bad:
        raise InputError(f"what the script's ranks do does not fit together: {bad}", told.torch, DOCS) from None
    if not found:
        what = "the script's ranks have nothing to do with each other: no collective, no message"
        raise InputError(what, told.torch, "does it call init_process_group and wrap its model?")
    return recorded, found


@cache  # of a sweep, which changes the fabric
def _recorded(script: Script) -> Recorded:
    with scratch("torch") as folder:
        return record(script, folder, partial(Progress().waiting, f"the ranks of {Path(script.path).name}"))


def place_of(told: TorchStep, experiment: Experiment, key: str = "torch") -> str:
    """Where in the experiment it stands."""
    number = next((k for k, step in enumerate(experiment.workload) if step is told), 0)
    return experiment.place("workload", number, key)
