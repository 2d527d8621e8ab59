"""What each kind of step of a workload becomes: steps of the plan, and a graph if it is made of tasks.

A kind that has no line of its own is found by the class that it extends.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from testbed.experiment.steps.collective import CollectiveStep
from testbed.experiment.steps.flows import FlowsStep, LoadStep
from testbed.experiment.steps.graphs import GraphStep
from testbed.experiment.steps.program import ProgramStep
from testbed.experiment.steps.serving_checks import ServeStep
from testbed.experiment.steps.traces import TorchStep
from testbed.experiment.steps.training import TrainStep
from testbed.plan.steps.planner import Planner
from workloads.base.entry import named

if TYPE_CHECKING:
    from testbed.experiment import Experiment
    from testbed.experiment.steps.step import Step
    from testbed.plan.steps.planned import Planned
    from workloads.tasks.graph import Graph


@dataclass(frozen=True)
class Becomes:
    """Where the functions are, which are imported when somebody asks for them."""

    steps: str  # (step, planner) -> steps of the plan
    graph: str = ""  # (step, planner) -> its graph


BECOMES: dict[type[Step], Becomes] = {
    CollectiveStep: Becomes("testbed.plan.steps.planner:collective_steps"),
    FlowsStep: Becomes("testbed.plan.steps.flows:flows_steps"),
    LoadStep: Becomes("testbed.plan.steps.flows:load_steps"),
    GraphStep: Becomes("testbed.plan.steps.tasks:task_steps", "testbed.plan.steps.tasks:task_graph"),
    ProgramStep: Becomes("testbed.plan.steps.program:program_steps"),
    TrainStep: Becomes("testbed.plan.steps.training:training_steps", "testbed.plan.steps.training:training_graph"),
    ServeStep: Becomes("testbed.plan.steps.serving:serving_steps", "testbed.plan.steps.serving:serving_graph"),
    TorchStep: Becomes("testbed.plan.steps.scripts:script_steps", "testbed.plan.steps.scripts:script_graph"),
}


def becomes(step: Step) -> Becomes:
    """What this step becomes."""
    return next(BECOMES[kind] for kind in type(step).__mro__ if kind in BECOMES)


def steps_of(step: Step, planner: Planner) -> list[Planned]:
    """Its steps of the plan: one, most often."""
    made: list[Planned] = named(becomes(step).steps)(step, planner)
    return made


def graph_of(step: Step, planner: Planner) -> Graph | None:
    """A training step is that of the whole model, a serving step that of the most micro-batches.

    A script is run, and stands for the step that it does most often.
    """
    made_by = becomes(step).graph
    graph: Graph | None = named(made_by)(step, planner) if made_by else None
    return graph


def graphs(experiment: Experiment) -> dict[int, Graph]:
    """Number of the step in the workload -> its graph; steps that are none are left out."""
    planner = Planner(experiment)
    every = ((number, graph_of(step, planner)) for number, step in enumerate(experiment.workload))
    return {number: graph for number, graph in every if graph is not None}
