"""Checks of steps that are traces: the files, and their graph against the fabric."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from testbed.experiment import task_checks
from testbed.experiment.step_checks import Found
from testbed.experiment.steps.traces import AicbStep, ChakraStep
from topologies.graph.fabric import Fabric
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
