"""A flow's time alone on an idle fabric: the divisor of its slowdown."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from testbed.experiment.basis import Basis
from topologies.graph.fabric import EMBEDDED, OWN_PORTS
from topologies.kinds import DIMENSION_ORDER
from workloads.base.vocabulary import FLOW_MESSAGE_BYTES
from workloads.credit.credit import AHEAD, DEMAND_BYTES, IN_TURN, PULLS, SHORTEST, Credit
from workloads.times.messages import Costs, Link, MemoryPath, Path, flow_ns
from workloads.verbs.bond import parts

if TYPE_CHECKING:
    from testbed.experiment import Experiment
    from testbed.experiment.blocks.transport import Sending


def costs_of(experiment: Experiment) -> Costs:
    """The costs of an experiment's hosts and NICs, for the closed forms."""
    nic, costs = experiment.fabric.nic, experiment.costs
    return Costs(
        mtu=nic.mtu,
        post_ns=costs.post,
        pcie_rate_bps=nic.pcie.rate,
        pcie_latency_ns=nic.pcie.latency,
        ack_every=nic.ack_every,
        tx_buffer_bytes=nic.tx_buffer,
        wake_ns=costs.wake,
        reduce_bps=costs.reduce,
        by_channel=costs.reduce_by == "channel",
        reths=experiment.transport.ordering == "any",
        behind_bytes=_behind(experiment),
        credit=_credit(experiment),
        queue_pairs=experiment.transport.qps,
        split=experiment.transport.qps_split,
    )


def _credit(experiment: Experiment) -> Credit | None:
    """What senders wait for, under a control by which receivers let them send."""
    cc = experiment.transport.cc
    if "credit" not in cc.control.hears:
        return None
    of = cc.control.values(Basis(experiment).setting, cc.values, cc.set)
    by = {"rccc": AHEAD, "uec": AHEAD, "eqds": AHEAD, "ndp": PULLS, "homa": SHORTEST}.get(cc.name, IN_TURN)
    its = of["initial"], of["window"], int(of["grant_packets"]), of["pull_share"]
    return Credit(*its, by, anew=cc.name == "ndp", active=int(of.get("overcommit", 0)))


def _behind(experiment: Experiment) -> int:
    """Bytes behind each packet: what its sender would like to be granted, and what is measured on its way."""
    hears = experiment.transport.cc.control.hears
    return DEMAND_BYTES * (1 + ("delay" in hears)) if "credit" in hears else 0


def costs_with_engines(experiment: Experiment) -> Costs:
    """What hosts and their NICs take, with the adders of on-path SmartNICs if these are such."""
    costs, engine = costs_of(experiment), experiment.fabric.nic.engine
    if engine is None:
        return costs
    return replace(costs, engine_reduce_bps=engine.reduce, engine_packets_per_s=engine.packets)


def sprays(transport: Sending) -> bool:
    """Whether a message's packets take all of the shortest ways."""
    return transport.multipath is not None and not transport.multipath.entry.one_path


_HOP_NS = 1e15  # more than any cable takes: the fewest hops come first


class Ideal:
    """Times of flows that are alone on an experiment's fabric, in ns (docs/closed-form.md)."""

    def __init__(self, experiment: Experiment) -> None:
        self._basis, self._costs = Basis(experiment), costs_of(experiment)
        self._fabric, self._cores = self._basis.graph, self._basis.fabric.nic.complex
        data_class = experiment.fabric.switch.dscp.get(experiment.transport.dscp, 0)
        shaper = self._basis.shaper(data_class)
        self._shaper = shaper if shaper and shaper.max else None
        self._sprays = sprays(experiment.transport)
        self._adaptive = experiment.control.routing.adaptive is not None
        self._one_way = self._fabric.kind in DIMENSION_ORDER
        self.time_ns = cache(self._time_ns)
        self._path = cache(self._shortest)

    def _shortest(self, source: int, target: int, lanes: int) -> Path:
        """The fastest of the shortest paths; none leads through other hosts' NICs, unless these forward.

        `lanes`: by so many queue pairs at a time, each of which keeps one path.
        """
        import networkx as nx  # slow to import

        fabric, basis = self._fabric, self._basis
        source_nic, target_nic = fabric.nics[source].name, fabric.nics[target].name
        own = {fabric.cable_at[name, 1].other(name).node for name in (source_nic, target_nic)}
        bridges = {s.name for s in fabric.switches if s.role == OWN_PORTS}
        others = sorted(bridges - own)

        def takes(a: str, b: str, edge: dict[str, Any]) -> float:
            rate, delay = basis.cable(edge["cable"])
            return _HOP_NS + delay + 8e9 * basis.fabric.nic.mtu / rate

        nodes = nx.shortest_path(nx.restricted_view(fabric.graph, others, []), source_nic, target_nic, weight=takes)
        cables = [fabric.graph.edges[a, b]["cable"] for a, b in pairwise(nodes)]
        switches = [fabric.switch_by_name[name] for name in nodes[1:-1]]
        latencies = [basis.hardware.latency_ns(switch) for switch in switches]
        cuts = [*map(basis.hardware.cuts_through, switches), False]
        links = tuple(Link(*basis.cable(c), basis.share(c), cut) for c, cut in zip(cables, cuts, strict=True))
        if not self._one_way and (self._sprays or self._adaptive or lanes > 1):  # several of the shortest paths
            at_once = self._at_once(source_nic, target_nic, others)
            if not self._sprays:  # where something hashes, a queue pair takes one cable: bridges in NICs do
                hops = zip(pairwise(nodes[1:-1]), links[1:-1], strict=True)
                hashed = [link for ends, link in hops if not self._adaptive or bridges.intersection(ends)]
                at_once = min([at_once, *(lanes * link.together_bps for link in hashed)])
            links = tuple(replace(link, spread=max(link.spread, at_once / link.rate_bps)) for link in links)
        if of := self._shaper:
            chips = [False, *(s.role not in EMBEDDED for s in switches)]
            most = [k.spread * of.max if k.spread > 1 else min(k.spread, of.max) for k in links]
            shaped = [replace(k, spread=n, burst_bytes=of.burst_bytes) for k, n in zip(links, most, strict=True)]
            links = tuple(k if chip else link for k, link, chip in zip(shaped, links, chips, strict=True))
        return Path(links, tuple(latencies), memories=(self._memory(source), self._memory(target)))

    def _at_once(self, source: str, target: str, others: list[str]) -> float:
        """What the shortest paths carry at once from NIC to NIC, in bit/s: the most that flows over their cables."""
        import networkx as nx

        graph = nx.restricted_view(self._fabric.graph, others, [])
        before, behind = (nx.single_source_shortest_path_length(graph, end) for end in (source, target))
        flows: nx.DiGraph[str] = nx.DiGraph()
        for a, b, edge in [e for x, y, d in graph.edges(data=True) for e in ((x, y, d), (y, x, d))]:
            if a in before and b in behind and before[a] + 1 + behind[b] == before[target]:
                cable = edge["cable"]
                flows.add_edge(a, b, capacity=self._basis.cable(cable)[0] * self._basis.share(cable))
        return float(nx.maximum_flow_value(flows, source, target))

    def _memory(self, end: int) -> MemoryPath:
        """Of a host, or of a compute complex."""
        cores, costs = self._cores, self._costs
        if cores is None or end < self._fabric.ranks:
            return MemoryPath(costs.pcie_rate_bps, costs.pcie_latency_ns)
        return MemoryPath(cores.rate, cores.dma_latency)

    def _time_ns(self, source: int, target: int, size_bytes: int) -> float | None:
        """None inside a scale-up domain, for which there is no formula."""
        names = {self._fabric.nics[source].name, self._fabric.nics[target].name}
        if any(names <= set(domain) for domain in self._fabric.scale_up):
            return None
        cores, costs = self._cores, self._costs
        if cores is not None and source >= self._fabric.ranks:
            costs = replace(costs, post_ns=cores.post)
        whole = flow_ns(size_bytes, self._path(source, target, self._lanes(size_bytes)), costs)
        if not costs.more_posts_ns:
            return whole
        *_, (_, last) = parts(size_bytes % FLOW_MESSAGE_BYTES or FLOW_MESSAGE_BYTES, costs.queue_pairs)
        return max(whole, costs.more_posts_ns + flow_ns(last, self._path(source, target, 1), costs))

    def _lanes(self, size_bytes: int) -> int:
        """Queue pairs that a flow goes by."""
        costs = self._costs
        return costs.queue_pairs if costs.split else min(costs.queue_pairs, -(-size_bytes // FLOW_MESSAGE_BYTES) or 1)
