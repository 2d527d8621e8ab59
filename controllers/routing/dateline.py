"""The dateline of a torus or ring: two lossless classes, so that no cycle of buffers can wait for each other.

Around a ring of switches every buffer can wait for the next one, and then nothing moves.  So a frame that has still to
cross a dimension's wrap-around cable, in that dimension, goes in a second lossless class until it has crossed it
(Dally and Seitz, 1987, with the class chosen before the dateline instead of behind it: it then follows from where the
switch and the destination are, and no frame has to remember anything).  In that class the wrap-around cable is always
the last one, and in the first class it never occurs; so neither class's buffers form a circle, and with dimension order
no dimension waits for an earlier one.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property

from controllers.flows import PRIORITY, Flow, SetDscp
from topologies.graph.fabric import Fabric, Switch
from topologies.kinds import dimensions
from topologies.ranks.dateline import beyond, direction

DSCP, DSCP_ACROSS = 26, 28
"""DSCP of RDMA data, and while it has to cross a dateline; switches map them to two lossless classes."""


class Dateline:
    """Which destinations lie across the dateline."""

    def __init__(self, fabric: Fabric) -> None:
        self.fabric = fabric
        self._dims = dimensions(fabric)

    @cached_property
    def _places(self) -> list[tuple[int, tuple[int, ...]]]:
        places = []
        for nic in self.fabric.nics:
            switch = self.fabric.switch_by_name[self.fabric.cable_at[nic.name, 1].other(nic.name).node]
            places.append((int(nic.ip), switch.place))
        return places

    def across(self, switch: Switch, port: int) -> set[int]:
        """Addresses whose path from here by this port crosses the wrap-around cable of the port's dimension."""
        neighbour = self.fabric.switch_by_name[self.fabric.cable_at[switch.name, port].other(switch.name).node]
        if switch.place == neighbour.place:  # from or to a NIC's embedded bridge
            return set()
        axis, up = direction(self._dims, switch.place, neighbour.place)
        far = beyond(self._dims[axis], switch.place[axis], upwards=up)
        return {ip for ip, place in self._places if place[axis] in far}


def with_dscp(flow: Flow, across: bool) -> Flow:
    """The flow above `flow` for the data frames whose DSCP has to change here."""
    before, after = (DSCP, DSCP_ACROSS) if across else (DSCP_ACROSS, DSCP)
    return replace(
        flow, priority=PRIORITY + 1, match=(*flow.match, ("ip_dscp", before)), actions=(SetDscp(after), *flow.actions)
    )
