"""Into how many partitions fabricd divides a fabric, where a file leaves it open."""

from __future__ import annotations

from topologies import Fabric

WORTH_NICS = 1024
"""Below that what belongs to all frames finds room in the caches, and windows cost more than they save."""
NICS = 128
"""Of a partition: what belongs to their frames stays in a core's cache for a window."""


def partitions_of(fabric: Fabric) -> int:
    return len(fabric.nics) // NICS if len(fabric.nics) >= WORTH_NICS else 1
