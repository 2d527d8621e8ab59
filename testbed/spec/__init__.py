"""The experiment file: its models, and a loader whose errors name file and line."""

from testbed.spec.loader import load, loads
from testbed.spec.model import (
    Clock,
    CollectiveStep,
    Costs,
    Experiment,
    FabricSpec,
    Flow,
    FlowsStep,
    Nic,
    ScaleUp,
    Topology,
    Workers,
)

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
