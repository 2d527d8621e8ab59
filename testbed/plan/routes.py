"""The ways of an experiment's fabric with their cables and switches, as models of what goes over them need them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING

from controllers.offload.trees import Trees
from controllers.routing.dateline import DSCP, DSCP_ACROSS
from testbed.experiment.basis import Basis
from testbed.plan.ideal import costs_of, sprays
from testbed.plan.rooms import rooms
from topologies.graph.fabric import EMBEDDED
from topologies.ranks.hops import Hops
from workloads.times.buffers import Room
from workloads.times.messages import Link, Path
from workloads.times.queue_pairs import Numbers
from workloads.times.ways import Routed

if TYPE_CHECKING:
    from testbed.experiment import Experiment


def has_dateline(experiment: Experiment) -> bool:
    """Whether what has to cross a grid's dateline has a class of its own: as the controller marks it."""
    classes = experiment.fabric.switch.dscp
    marked = experiment.transport.dscp == DSCP and classes.get(DSCP) != classes.get(DSCP_ACROSS)
    return experiment.control.dateline and marked


class Routes:
    """How ranks and NICs of one experiment's fabric reach each other, and what that costs."""

    def __init__(self, experiment: Experiment) -> None:
        basis = Basis(experiment)
        self.experiment, self.basis = experiment, basis
        self.fabric, self.seed, self.costs = basis.graph, experiment.seed, costs_of(experiment)
        self._hops = Hops(self.fabric, experiment.control.routing.hashing)
        self.chooses = self._hops.chooses
        bare, hardware, scale_up = self._hops.fabric, basis.hardware, basis.fabric.scale_up
        cables = {c: Link(*hardware.cable(bare, c), basis.share(c)) for c in bare.cables}
        cuts = {s.name for s in bare.switches if hardware.cuts_through(s)}
        hops = [(c, hop) for c in bare.cables for hop in ((c.a.node, c.b.node), (c.b.node, c.a.node))]
        self._links = {hop: replace(cables[c], cuts=True) if hop[1] in cuts else cables[c] for c, hop in hops}
        self.data_class = experiment.fabric.switch.dscp.get(experiment.transport.dscp, 0)
        shaper, chips = basis.shaper(self.data_class), {s.name for s in bare.switches if s.role not in EMBEDDED}
        if shaper and shaper.max:
            for hop in [hop for hop in self._links if hop[0] in chips]:
                link, burst = self._links[hop], shaper.burst_bytes
                self._links[hop] = replace(link, spread=min(link.spread, shaper.max), burst_bytes=burst)
        self._latencies = {s.name: hardware.latency_ns(s) for s in bare.switches}
        self._dateline = has_dateline(experiment)
        self._spread = sprays(experiment.transport)
        self._by_switches = not self._spread and experiment.control.routing.adaptive is not None
        self._fixed_port = experiment.transport.source_port == "fixed"
        self._rooms: dict[int, dict[str, Room]] = {}
        self._scale_up = Link(scale_up.rate, scale_up.delay) if scale_up else None

    def ways(self, ranks: Sequence[int], *, scale_up: bool = True, numbers: Numbers | None = None) -> Routed:
        """How these ranks reach each other; without `scale_up` over the network alone, as NICs do.

        `numbers`: of their queue pairs, where they are known.
        """
        inside = self._scale_up if scale_up else None
        return Routed(
            self._hops,
            ranks,
            self._links,
            self._latencies,
            inside,
            numbers or {},
            self._dateline,
            self._spread,
            self._by_switches,
            self._fixed_port,
        )

    def along(self, nodes: Sequence[str]) -> Path:
        """From NIC to NIC over these nodes."""
        links = tuple(self._links[pair] for pair in pairwise(nodes))
        return Path(links, tuple(self._latencies[name] for name in nodes[1:-1]))

    def rooms(self, traffic_class: int) -> dict[str, Room]:
        """Buffers of switches and NICs, as far as they pause this class."""
        if traffic_class not in self._rooms:
            self._rooms[traffic_class] = rooms(self.experiment, traffic_class)
        return self._rooms[traffic_class]

    @cached_property
    def trees(self) -> Trees:
        """As the controller makes them for what switches copy and add up."""
        return Trees(self.fabric)
