"""Checks of steps that are traces or scripts: the files, and a trace's graph against the fabric."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from testbed.experiment import task_checks, training
from testbed.experiment.step_checks import Found, rank_out_of_range
from testbed.experiment.steps.traces import AicbStep, ChakraStep, TorchStep
from topologies.graph.fabric import Fabric
from workloads.base import named_file
from workloads.chakra.et import BadTrace

if TYPE_CHECKING:
    from testbed.experiment.blocks.fabric import FabricSpec


def trace(step: ChakraStep | AicbStep, spec: FabricSpec, fabric: Fabric) -> Iterator[Found]:
    """All mistakes in it."""
    yield from ((("algorithm", *path), what, hint) for path, what, hint in task_checks.named(step.algorithm))
    key = "groups" if isinstance(step, ChakraStep) and step.groups else step.kind
    try:
        graph = step.graph(fabric.ranks)
    except BadTrace as bad:
        where = key if bad.file and key == "groups" and bad.file == getattr(step, "groups", None) else step.kind
        yield (where,), str(bad), "docs/chakra.md says what is read"
        return
    for name, its in graph.settings.items():
        if problem := task_checks.no_dscp(its.traffic_class, spec):
            yield (step.kind,), f"group {name!r} of the trace: {problem[0]}", problem[1]
    said: set[str] = set()
    for task, _, what, hint in task_checks.collectives(graph, fabric):
        if what not in said:
            yield (step.kind,), f"task {task.id!r}: {what}", hint
        said.add(what)


def script(step: TorchStep, spec: FabricSpec, fabric: Fabric) -> Iterator[Found]:
    """All mistakes that show before the script is run."""
    yield from ((("algorithm", *path), what, hint) for path, what, hint in task_checks.named(step.algorithm))
    if problem := task_checks.no_dscp(step.traffic_class, spec):
        yield ("traffic_class",), *problem
    try:
        named_file.check(step.torch)
    except named_file.Missing:
        yield ("torch",), f"there is no file {step.torch}", "a path from the experiment file's folder on"
    except named_file.Unreadable as error:
        yield ("torch",), f"{step.torch} cannot be read: {error.what}", "a script of Python"
    for k, rank in enumerate(step.ranks or ()):
        if problem := rank_out_of_range(rank, fabric.ranks):
            yield ("ranks", k), *problem
        elif rank in (step.ranks or ())[:k]:
            yield ("ranks", k), f"rank {rank} stands twice", "each of the script's ranks has one of its own"
    try:
        training.gpu_of(step.gpu, "float32", any_type=True)
    except training.Mistakes as wrong:
        yield from wrong.found
