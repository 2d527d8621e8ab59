"""The order in which a ring over all ranks takes them, so that neighbours in the ring are neighbours in the network.

Ranks count the places of a grid (servers x GPUs, or a torus's coordinates) row by row; a ring that follows them jumps
at the end of each row.  The order here turns round there instead (a reflected mixed-radix Gray code): each step changes
one coordinate by one.  In a rail fabric a server is then left by the GPU on whose rail the next one is entered.
"""

from __future__ import annotations

from collections.abc import Sequence

from topologies.graph.fabric import Fabric
from topologies.kinds import dimensions


def ring_order(fabric: Fabric) -> list[int]:
    """All ranks, in ring order.  The last meets the first without a detour where the first dimension is even."""
    dims = dimensions(fabric)
    return snake(dims) if dims else list(range(fabric.ranks))


def snake(dims: Sequence[int]) -> list[int]:
    """The places of a grid, numbered row by row, in an order in which each differs from the one before by one step."""
    order = [0]
    for size in reversed(dims):
        block = len(order)
        order = [k * block + place for k in range(size) for place in (order if k % 2 == 0 else reversed(order))]
    return order
