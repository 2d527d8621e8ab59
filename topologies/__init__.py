"""Topologies: pure graphs of servers, GPUs, NICs, switches and cables."""

from topologies.graph.fabric import Cable, End, Fabric, Host, Nic, Switch, TopologyError
from topologies.graph.validate import validate
from topologies.kinds import KINDS, build, in_words

__all__ = ["KINDS", "Cable", "End", "Fabric", "Host", "Nic", "Switch", "TopologyError", "build", "in_words", "validate"]
