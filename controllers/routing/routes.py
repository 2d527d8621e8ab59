"""Routes: the flows of every switch of a fabric, as a pure function.

Frames take shortest paths over the cables that are up; a routing (one entry of ROUTINGS) says which of them a switch
uses.  A hop always comes closer to the destination, so that no routing can loop, with or without failed cables.
Destinations are aggregated into prefixes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Set
from dataclasses import dataclass
from ipaddress import IPv4Network

from controllers.flows import Flow, arp_responder, members, to_network
from controllers.routing import dimension_order, ecmp
from controllers.routing.dateline import Dateline, with_dscp
from controllers.routing.distances import Toward, ends, live_links, shortest
from controllers.routing.prefixes import PrefixTree
from topologies.graph.fabric import Fabric, Switch
from topologies.graph.mistake import Mistake
from topologies.kinds import DIMENSION_ORDER

Split = Callable[[Fabric, Switch, Toward], dict[tuple[int, ...], int]]


class RoutingError(Mistake, ValueError):
    """A routing that does not exist or does not fit the topology: `what` is wrong, `hint` what to do."""


@dataclass(frozen=True)
class Routing:
    """A way to choose among shortest paths.  `split` gives the groups of equal ports of a switch."""

    name: str
    summary: str
    split: Split
    kinds: frozenset[str] | None = None  # of topology that it works on; None: any


def _default(fabric: Fabric, switch: Switch, toward: Toward) -> dict[tuple[int, ...], int]:
    split: Split = dimension_order.split if fabric.kind in DIMENSION_ORDER else ecmp.split
    return split(fabric, switch, toward)


ROUTINGS = {
    r.name: r
    for r in (
        Routing("ecmp", "all shortest paths, by hash; torus and ring: dimension order", _default),
        Routing("dimension_order", "lowest dimension first (torus, ring)", dimension_order.split, DIMENSION_ORDER),
    )
}


class Router:
    """The flows of one fabric under one routing.  Raises RoutingError if they do not go together."""

    def __init__(self, fabric: Fabric, routing: str = "ecmp", *, dateline: bool = False) -> None:
        known = ROUTINGS.get(routing)
        if known is None:
            raise RoutingError(f"unknown routing '{routing}'", f"known: {', '.join(ROUTINGS)}")
        if known.kinds is not None and fabric.kind not in known.kinds:
            kinds = " and ".join(sorted(known.kinds))
            raise RoutingError(f"routing '{routing}' does not fit a {fabric.kind}", f"it is for {kinds}; use ecmp")
        self.fabric = fabric
        self._split = known.split
        self._dateline = Dateline(fabric) if fabric.kind in DIMENSION_ORDER else None
        self._with_dateline = dateline
        self._ends = ends(fabric)
        self._tree = PrefixTree(sorted(int(n.ip) for n in fabric.nics))
        self._nic_ports: dict[str, list[tuple[int, int]]] = {s.name: [] for s in fabric.switches}
        for nic in fabric.nics:
            end = fabric.cable_at[nic.name, 1].other(nic.name)
            self._nic_ports[end.node].append((int(nic.ip), end.port))
        self._attached = {
            switch: sum(self._tree.bit[address] for address, _ in nics) for switch, nics in self._nic_ports.items()
        }

    def flows(self, down: Set[tuple[str, int]] = frozenset(), dateline: bool | None = None) -> dict[str, list[Flow]]:
        """Every switch's flows when the ports in `down`, (switch, port), carry nothing.

        `dateline`: whether a torus or ring has one (None: as the router was made).

        A cable is out of use as soon as one of its ends is down.  There is no path around a NIC's own cable: its
        switch goes on sending there, so that the frames are lost, and counted, at that cable.
        """
        paths = shortest(live_links(self.fabric, down), self._attached, self._ends)
        line = self._dateline if (self._with_dateline if dateline is None else dateline) else None
        return {s.name: self._switch_flows(s, paths[s.name], line) for s in self.fabric.switches}

    def _switch_flows(self, switch: Switch, toward: Toward, dateline: Dateline | None) -> list[Flow]:
        groups = {ports: nics for ports, nics in self._split(self.fabric, switch, toward).items() if nics}
        # Switches in a row must choose independently, so every switch hashes with its own basis.
        flows = [
            to_network(network, ports, basis=switch.dpid)
            for ports, nics in groups.items()
            for network in self._tree.cover(nics)
        ]
        if dateline is not None:
            flows += self._dateline_flows(dateline, switch, groups)
        flows += [to_network(IPv4Network(address), (port,)) for address, port in self._nic_ports[switch.name]]
        flows += [flow for ports in groups if len(ports) > 1 for flow in members(ports)]
        if self._nic_ports[switch.name]:
            flows.append(arp_responder(self._tree.network))
        return flows

    def _dateline_flows(self, dateline: Dateline, switch: Switch, groups: dict[tuple[int, ...], int]) -> Iterator[Flow]:
        """For each destination, the flow of the data frames that change their class here."""
        for ports, nics in groups.items():
            far = sum(self._tree.bit[ip] for ip in dateline.across(switch, ports[0])) & nics
            for across, mask in ((True, far), (False, nics & ~far)):
                for network in self._tree.cover(mask):
                    yield with_dscp(to_network(network, ports), across)


def routes(fabric: Fabric, down: Set[tuple[str, int]] = frozenset(), routing: str = "ecmp") -> dict[str, list[Flow]]:
    """Every switch's flows (see Router.flows).  Raises RoutingError."""
    return Router(fabric, routing).flows(down)
