"""The experiment file: its models, and a loader whose errors name file and line."""

from testbed.experiment.blocks.clock import Clock
from testbed.experiment.blocks.fabric import FabricSpec, Nic, ScaleUp, Topology
from testbed.experiment.blocks.workers import Costs, Workers
from testbed.experiment.loader import load, loads
from testbed.experiment.model import Experiment
from testbed.experiment.steps.collective import CollectiveStep
from testbed.experiment.steps.flows import Flow, FlowsStep

__all__ = [
    "Clock",
    "CollectiveStep",
    "Costs",
    "Experiment",
    "FabricSpec",
    "Flow",
    "FlowsStep",
    "Nic",
    "ScaleUp",
    "Topology",
    "Workers",
    "load",
    "loads",
]
