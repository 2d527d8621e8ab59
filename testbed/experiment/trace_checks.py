"""Checks of steps that are traces: the files, and their graph against the fabric."""

from __future__ import annotations

from collections.abc import Iterator

from testbed.base.types import unknown
from testbed.experiment import task_checks
from testbed.experiment.blocks import known
from testbed.experiment.blocks.traces import AicbStep, ChakraStep
from testbed.experiment.step_checks import Found
from topologies.graph.fabric import Fabric
from workloads.chakra.et import BadTrace


def trace(step: ChakraStep | AicbStep, fabric: Fabric) -> Iterator[Found]:
    """All mistakes in it."""
    for name, algorithm in step.algorithm.items():
        if name not in known.collectives():
            yield ("algorithm", name), *unknown("collective", name, known.collectives())
        elif algorithm not in known.choices(name):
            what, hint = unknown("algorithm", algorithm, known.choices(name))
            yield ("algorithm", name), f"{what} of {name}", hint
    key = "groups" if isinstance(step, ChakraStep) and step.groups else step.kind
    try:
        graph = step.graph(fabric.ranks)
    except BadTrace as bad:
        where = key if bad.file and key == "groups" and bad.file == getattr(step, "groups", None) else step.kind
        yield (where,), str(bad), "docs/chakra.md says what is read"
        return
    said: set[str] = set()
    for task, _, what, hint in task_checks.collectives(graph, fabric):
        if what not in said:
            yield (step.kind,), f"task {task.id!r}: {what}", hint
        said.add(what)
