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
from controllers.routing.weights import Weights
from topologies.graph.fabric import EMBEDDED, Cable, Fabric, Switch
from topologies.graph.mistake import Mistake
from topologies.kinds import DIMENSION_ORDER, KINDS
from topologies.ranks.multipath import BY_NUMBER, Hashing

Groups = dict[tuple[int, ...], int]
Split = Callable[[Fabric, Switch, Toward], Groups]


class RoutingError(Mistake, ValueError):
    """A routing that does not exist or does not fit the topology: `what` is wrong, `hint` what to do."""


@dataclass(frozen=True)
class Routing:
    """A way to choose among shortest paths.  `split` gives the groups of equal ports of a switch."""

    name: str
    summary: str
    split: Split
    kinds: frozenset[str] | None = None  # of topology that it works on; None: any
    choose: bool = False  # of a group of equal ports the switch's chip takes one, frame by frame
    why: str = ""  # it fits no other kinds


def _default(fabric: Fabric, switch: Switch, toward: Toward) -> dict[tuple[int, ...], int]:
    split: Split = dimension_order.split if fabric.kind in DIMENSION_ORDER else ecmp.split
    return split(fabric, switch, toward)


ROUTINGS = {
    r.name: r
    for r in (
        Routing("ecmp", "all shortest paths, by hash; torus and ring: dimension order", _default),
        Routing("dimension_order", "lowest dimension first (torus, ring)", dimension_order.split, DIMENSION_ORDER),
        Routing(
            "adaptive",
            "all shortest paths, of which switches take one for each frame",
            ecmp.split,
            frozenset(KINDS) - DIMENSION_ORDER,
            choose=True,
            why="it would undo the dateline, which keeps lossless classes from deadlock",
        ),
    )
}


class Router:
    """The flows of one fabric under one routing.  Raises RoutingError if they do not go together."""

    def __init__(
        self,
        fabric: Fabric,
        routing: str = "ecmp",
        *,
        dateline: bool = False,
        cable_bps: float | None = None,
        hashing: Hashing = BY_NUMBER,
    ) -> None:
        """`cable_bps`: of cables that have no rate of their own, where ports are to weigh by rates."""
        known = ROUTINGS.get(routing)
        if known is None:
            raise RoutingError(f"unknown routing '{routing}'", f"known: {', '.join(ROUTINGS)}")
        if known.kinds is not None and fabric.kind not in known.kinds:
            kinds = " and ".join(sorted(known.kinds))
            what = f"routing '{routing}' does not fit a {fabric.kind}" + (f": {known.why}" if known.why else "")
            raise RoutingError(what, f"it is for {kinds}; use ecmp")
        self.fabric = fabric
        self._split, self._choose, self._cable_bps = known.split, known.choose or hashing.dest_qp, cable_bps
        self._hashing = hashing
        self._rates: dict[Cable, float] = {}  # in bit/s, of cables that have another one than when all began
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
        links = live_links(self.fabric, down)
        paths = shortest(links, self._attached, self._ends)
        weights = Weights(links, paths, self._rate) if self._choose and self._cable_bps else None
        line = self._dateline if (self._with_dateline if dateline is None else dateline) else None
        return {s.name: self._switch_flows(s, paths[s.name], line, weights) for s in self.fabric.switches}

    def set_rate(self, cable: Cable, rate_bps: float) -> None:
        """From now on ports weigh by this rate of a cable."""
        self._rates[cable] = rate_bps

    def _rate(self, switch: str, port: int) -> float:
        cable = self.fabric.cable_at[switch, port]
        return self._rates.get(cable) or cable.rate_bps or self._cable_bps or 0.0

    def _weighed(self, switch: Switch, groups: Groups, weights: Weights) -> Groups:
        """The groups with each port as often as it weighs, which may differ with the destination."""
        weighed: Groups = {}
        for ports, nics in groups.items():
            for of_switch in self._attached.values():
                if there := nics & of_switch:
                    numbers = weights.of(switch.name, ports, there & -there) if len(ports) > 1 else (1,)
                    repeated = tuple(port for port, n in zip(ports, numbers, strict=True) for _ in range(n))
                    weighed[repeated] = weighed.get(repeated, 0) | there
        return weighed

    def _switch_flows(
        self, switch: Switch, toward: Toward, dateline: Dateline | None, weights: Weights | None
    ) -> list[Flow]:
        groups = {ports: nics for ports, nics in self._split(self.fabric, switch, toward).items() if nics}
        choose = self._choose and switch.role not in EMBEDDED  # a bridge in a NIC is no switch's chip
        if choose and weights is not None:
            groups = self._weighed(switch, groups, weights)
        # Switches in a row must choose independently, so every switch hashes with its own basis.
        flows = [
            to_network(network, ports, basis=self._hashing.basis(switch.dpid), choose=choose)
            for ports, nics in groups.items()
            for network in self._tree.cover(nics)
        ]
        if dateline is not None:
            flows += self._dateline_flows(dateline, switch, groups)
        flows += [to_network(IPv4Network(address), (port,)) for address, port in self._nic_ports[switch.name]]
        flows += [flow for ports in groups if len(ports) > 1 and not choose for flow in members(ports)]
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
