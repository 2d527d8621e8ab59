"""The experiment file: its models, and a loader whose errors name file and line."""

from testbed.spec.clock import Clock
from testbed.spec.fabric import FabricSpec, Nic, ScaleUp, Topology
from testbed.spec.loader import load, loads
from testbed.spec.model import Experiment
from testbed.spec.steps import CollectiveStep, Flow, FlowsStep
from testbed.spec.workers import Costs, Workers

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
