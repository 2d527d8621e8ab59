"""The experiment file: its models, and a loader whose errors name file and line."""

from testbed.spec.loader import load, loads
from testbed.spec.model import (
    Clock,
    Costs,
    Experiment,
    FabricSpec,
    Nic,
    ScaleUp,
    Topology,
    Workers,
)
from testbed.spec.steps import CollectiveStep, Flow, FlowsStep

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
