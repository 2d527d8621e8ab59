"""Topologies: pure graphs of servers, GPUs, NICs, switches and cables."""

from .fabric import Cable, End, Fabric, Host, Nic, Switch, TopologyError
from .registry import KINDS, build, in_words
from .validate import validate

__all__ = ["KINDS", "Cable", "End", "Fabric", "Host", "Nic", "Switch", "TopologyError", "build", "in_words", "validate"]
