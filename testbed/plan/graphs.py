"""The graphs of tasks of an experiment's steps, whatever they are made from."""

from __future__ import annotations

from typing import TYPE_CHECKING

from testbed.experiment.serving import graph_of_serving
from testbed.experiment.training import layout_of, settings_of, training_of
from workloads.steps.build import step_graph
from workloads.tasks.graph import Graph

if TYPE_CHECKING:
    from testbed.experiment import Experiment
    from testbed.experiment.steps.steps import Step


def graphs(experiment: Experiment) -> dict[int, Graph]:
    """Number of the step in the workload -> its graph; steps that are none are left out."""
    found = ((number, graph_of(step, experiment)) for number, step in enumerate(experiment.workload))
    return {number: graph for number, graph in found if graph is not None}


def graph_of(step: Step, experiment: Experiment) -> Graph | None:
    """A training step is that of the whole model, a serving step that of the most micro-batches."""
    fabric = experiment.build_fabric()
    if step.kind == "tasks":
        return step.tasks.graph(fabric.ranks)
    if step.kind == "chakra" or step.kind == "aicb":
        return step.graph(fabric.ranks)
    if step.kind == "train":
        return step_graph(training_of(step.train), layout_of(step.train, fabric), settings_of(step.train))
    if step.kind == "serve":
        return graph_of_serving(step.serve, experiment.seed)
    return None
