"""Topologies: pure graphs of servers, GPUs, NICs, switches and cables."""

from .fabric import Cable, End, Fabric, Host, Nic, Switch, TopologyError
from .registry import KINDS, build
from .validate import validate

__all__ = ["KINDS", "Cable", "End", "Fabric", "Host", "Nic", "Switch", "TopologyError", "build", "validate"]
