"""RDMA verbs for a worker (device.py), and the bytes on its socket (wire.py).  Imports nothing but Python's own."""

from workloads.verbs.device import CompletionError, Device, Tally
from workloads.verbs.handles import Group, Peer, QueuePair, Region
from workloads.verbs.session import FabricError

__all__ = ["CompletionError", "Device", "FabricError", "Group", "Peer", "QueuePair", "Region", "Tally"]
