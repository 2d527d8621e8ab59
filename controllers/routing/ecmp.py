"""Equal-cost multipath: every port on a shortest path takes a share of the flows.

In rail and clos fabrics shortest paths go up and then down, so that this is up-down routing as long as no cable has
failed; around failed cables a path may turn up again.  What port a flow takes is the hash of its addresses and its UDP
or TCP ports, which is where RoCEv2 carries its entropy.
"""

from __future__ import annotations

from controllers.routing.distances import Toward
from topologies.graph.fabric import Fabric, Switch


def split(fabric: Fabric, switch: Switch, toward: Toward) -> dict[tuple[int, ...], int]:
    """Groups of equal ports and the NICs (mask of bits) that each of them leads to."""
    groups: dict[tuple[int, ...], int] = {(): 0}
    for mask in toward.values():
        groups[()] |= mask
    for port, mask in sorted(toward.items()):
        refined: dict[tuple[int, ...], int] = {}
        for ports, nics in groups.items():
            if nics & mask:
                refined[(*ports, port)] = nics & mask
            if nics & ~mask:
                refined[ports] = nics & ~mask
        groups = refined
    return groups
