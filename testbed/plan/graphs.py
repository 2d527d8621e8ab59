"""The graphs of tasks of an experiment's steps, whatever they are made from."""

from __future__ import annotations

from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING

from testbed.base.errors import InputError, MachineError, UserError
from testbed.base.progress import Progress
from testbed.experiment.training import Mistakes, gpu_of, layout_of, settings_of, training_of
from testbed.machine.scratch import scratch
from testbed.plan.serving import serving_graph
from workloads.steps.build import step_graph
from workloads.tasks.check import BadGraph
from workloads.tasks.graph import Graph, Settings
from workloads.torch.cut import BadScript
from workloads.torch.launch import NoTorch, Recorded, Script, ScriptFailed, record
from workloads.torch.steps import Step, steps

if TYPE_CHECKING:
    from testbed.experiment import Experiment
    from testbed.experiment.steps.steps import Step as Written
    from testbed.experiment.steps.traces import TorchStep
    from topologies import Fabric

DOCS = "docs/pytorch.md says how a script becomes tasks"


def graphs(experiment: Experiment) -> dict[int, Graph]:
    """Number of the step in the workload -> its graph; steps that are none are left out."""
    found = ((number, graph_of(step, experiment)) for number, step in enumerate(experiment.workload))
    return {number: graph for number, graph in found if graph is not None}


def graph_of(step: Written, experiment: Experiment) -> Graph | None:
    """A training step is that of the whole model, a serving step that of the most micro-batches.

    A script is run, and stands for the step that it does most often.
    """
    fabric = experiment.build_fabric()
    if step.kind == "tasks":
        return step.tasks.graph(fabric.ranks)
    if step.kind == "chakra" or step.kind == "aicb":
        return step.graph(fabric.ranks)
    if step.kind == "train":
        return step_graph(training_of(step.train), layout_of(step.train, fabric), settings_of(step.train))
    if step.kind == "serve":
        return serving_graph(step.serve, experiment)
    if step.kind == "torch":
        return _steady(step, experiment, fabric)
    return None


def _steady(told: TorchStep, experiment: Experiment, fabric: Fabric) -> Graph:
    """The step that the script does most often."""
    return max(script_of(told, experiment, fabric)[1], key=lambda step: (step.training, step.times)).graph


def script_of(told: TorchStep, experiment: Experiment, fabric: Fabric) -> tuple[Recorded, list[Step]]:
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
