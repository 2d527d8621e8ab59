"""A training step that says `scale: {by: s}`, made smaller: 1/s of all bytes, computations and latencies.

Rates and the packets' size stay.  So everything takes 1/s of its time but for what a packet takes by itself: the
fill of a path, and the last packet of a message.  How much that is, closed forms say of both sizes.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from testbed.experiment.steps.steps import scaled_by
from workloads.base.vocabulary import DTYPES
from workloads.steps.fraction import divided
from workloads.tasks.graph import Graph
from workloads.tasks.task import Collective, Compute, Recv, Send, Task

if TYPE_CHECKING:
    from collections.abc import Mapping

    from testbed.experiment.model import Experiment

LATENCIES = (
    "fabric.cable.delay", "fabric.switch.latency", "fabric.nic.pcie.latency", "fabric.scale_up.delay", "costs.post",
    "costs.wake",
)  # fmt: skip


def scaled_down(experiment: Experiment) -> Experiment:
    """The experiment whose latencies are 1/s of what they are; itself if no step says `by`."""
    from testbed.experiment.overrides import changed

    by = scaled_by(experiment.workload)
    if by == 1:
        return experiment
    values = [(key, f"{ns / by}ns", key) for key in LATENCIES if (ns := _at(experiment, key)) is not None]
    return changed(experiment, values, "scale")


def _at(experiment: Experiment, key: str) -> float | None:
    value: Any = experiment
    for name in key.split("."):
        value = getattr(value, name) if value is not None else None
    return None if value is None else float(value)


def shrunk(graph: Graph, by: int, step: Mapping[str, Any]) -> Graph:
    """1/s of a graph.  `step`: what the whole graph has become in a plan; collectives keep its algorithms."""
    tasks = {
        rank: tuple(
            _smaller(task, by, graph, rank, step["ways"][told["way"]]["algorithm"] if "way" in told else None)
            for task, told in zip(its, step["tasks"][str(rank)], strict=True)
        )
        for rank, its in graph.tasks.items()
    }
    return Graph(graph.groups, tasks, graph.settings)


def _smaller(task: Task, by: int, graph: Graph, rank: int, algorithm: str | None) -> Task:
    match task:
        case Compute():
            return replace(task, duration_ns=round(task.duration_ns / by, 3))
        case Collective():
            unit = DTYPES[task.dtype] * len(graph.members(rank, task))
            return replace(task, size_bytes=divided(task.size_bytes, by, unit), algorithm=algorithm)
        case Send() | Recv():
            return replace(task, size_bytes=divided(task.size_bytes, by, 1))
    raise TypeError(f"{type(task).__name__} is no kind of task")
