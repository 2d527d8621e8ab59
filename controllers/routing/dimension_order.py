"""Dimension order for torus and ring: correct the lowest dimension first.

Of the ports on a shortest path a frame takes the one of the lowest dimension, and of its two directions the one of
growing coordinates when both are equally long.  Without failed cables that is dimension-order routing.  Around failed
cables it stays a shortest path (the other way round, or another dimension first), so that it cannot loop; but the order
of dimensions is then not kept everywhere.
"""

from __future__ import annotations

from controllers.routing.distances import Toward
from topologies.graph.fabric import Fabric, Switch
from topologies.kinds import dimensions


def split(fabric: Fabric, switch: Switch, toward: Toward) -> dict[tuple[int, ...], int]:
    """The one port and the NICs (mask of bits) that it leads to, for each port in use."""
    groups: dict[tuple[int, ...], int] = {}
    done = 0
    for port in sorted(toward, key=lambda p: _direction(fabric, switch, p)):
        if nics := toward[port] & ~done:
            groups[(port,)] = nics
            done |= nics
    return groups


def _direction(fabric: Fabric, switch: Switch, port: int) -> tuple[int, bool]:
    """The dimension that a port moves along, and whether it goes to lower coordinates (or round the edge to them).

    A NIC's embedded bridge is in the place of its switch: between them no dimension changes.
    """
    neighbour = fabric.switch_by_name[fabric.cable_at[switch.name, port].other(switch.name).node].place
    dimension = next((i for i, (a, b) in enumerate(zip(switch.place, neighbour, strict=True)) if a != b), None)
    if dimension is None:
        return -1, False
    return dimension, (neighbour[dimension] - switch.place[dimension]) % dimensions(fabric)[dimension] != 1
