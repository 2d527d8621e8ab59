"""RDMA verbs for a worker (device.py), and the bytes on its socket (wire.py).  Imports nothing but Python's own."""

from workloads.verbs.device import (
    CompletionError,
    Device,
    FabricError,
    Group,
    Peer,
    QueuePair,
    Region,
    Tally,
)

__all__ = ["CompletionError", "Device", "FabricError", "Group", "Peer", "QueuePair", "Region", "Tally"]
