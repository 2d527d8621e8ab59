"""The graphs of tasks of an experiment's steps, whatever they are made from."""

from __future__ import annotations

from typing import TYPE_CHECKING

from workloads.tasks.graph import Graph

if TYPE_CHECKING:
    from testbed.experiment import Experiment


def graphs(experiment: Experiment) -> dict[int, Graph]:
    """Number of the step in the workload -> its graph; steps that are none are left out."""
    ranks = experiment.build_fabric().ranks
    found = {}
    for number, step in enumerate(experiment.workload):
        if step.kind == "tasks":
            found[number] = step.tasks.graph(ranks)
        elif step.kind == "chakra" or step.kind == "aicb":
            found[number] = step.graph(ranks)
    return found
