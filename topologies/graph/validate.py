"""Checks that hold for every fabric: unique names and addresses, every port cabled once, connected."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable

from topologies.graph import address, search
from topologies.graph.fabric import OWN_PORTS, Fabric, TopologyError


def validate(fabric: Fabric) -> Fabric:
    """The fabric itself.  Raises TopologyError (key: the node, cable or address at fault)."""
    _numbers(fabric)
    _names(fabric)
    _hosts(fabric)
    _addresses(fabric)
    _cables(fabric)
    _connected(fabric)
    _reachable(fabric)
    return fabric


def _numbers(fabric: Fabric) -> None:
    for i, nic in enumerate(fabric.nics):
        if nic.rank != i:
            raise TopologyError(nic.name, f"has rank {nic.rank}", f"NICs are ordered by rank, this is number {i}")
    for i, switch in enumerate(fabric.switches):
        if switch.index != i:
            raise TopologyError(switch.name, f"has index {switch.index}", f"switches are ordered, this is number {i}")


def _names(fabric: Fabric) -> None:
    # A host with one NIC shares its name with it; nothing else may share one.
    nodes = [n.name for n in fabric.nics] + [s.name for s in fabric.switches]
    foreign = [h.name for h in fabric.hosts if h.nics != (h.name,)]
    _once(nodes + foreign, "is the name of two nodes")
    _once((h.name for h in fabric.hosts), "is the name of two hosts")


def _hosts(fabric: Fabric) -> None:
    listed = {nic: host.name for host in fabric.hosts for nic in host.nics}
    _once((nic for host in fabric.hosts for nic in host.nics), "is a NIC of two hosts")
    for nic in fabric.nics:
        if listed.pop(nic.name, None) != nic.host:
            raise TopologyError(nic.name, f"is not among the NICs of its host {nic.host}")
    domains = [nic for domain in fabric.scale_up for nic in domain]
    _once(domains, "is in two scale-up domains")
    for name in [*listed, *domains]:
        if name not in fabric.nic_by_name:
            raise TopologyError(name, "is no NIC of this fabric")


def _addresses(fabric: Fabric) -> None:
    _once((n.ip for n in fabric.nics), "is the address of two NICs")
    for nic in fabric.nics:
        if int(nic.ip) >> 24 != address.BASE >> 24:
            raise TopologyError(nic.name, f"has address {nic.ip}", "addresses lie in 10.0.0.0/8")
        if nic.mac != address.mac(nic.ip):
            raise TopologyError(nic.name, f"has MAC {nic.mac}", f"address {nic.ip} makes it {address.mac(nic.ip)}")


def _cables(fabric: Fabric) -> None:
    ports = {s.name: s.ports for s in fabric.switches} | {n.name: 1 for n in fabric.nics}
    for cable in fabric.cables:
        if not {cable.a.node, cable.b.node} & fabric.switch_by_name.keys():
            raise TopologyError(cable.name, "has no switch at either end")
        if cable.a.node == cable.b.node:
            raise TopologyError(cable.name, "joins a switch to itself")
        for end in (cable.a, cable.b):
            if not 1 <= end.port <= ports.get(end.node, 0):
                raise TopologyError(cable.name, f"ends in port {end.port} of {end.node}", "there is no such port")
        for value, what in ((cable.rate_bps, "rate"), (cable.delay_ns, "delay")):
            if value is not None and (value < 0 or (what == "rate" and not value)):
                raise TopologyError(cable.name, f"has a {what} of {value:g}")
    _once(("-".join(sorted((c.a.node, c.b.node))) for c in fabric.cables), "is cabled twice")
    _once((f"{e.node}:{e.port}" for c in fabric.cables for e in (c.a, c.b)), "has two cables in one port")
    for name, count in ports.items():
        for port in range(1, count + 1):
            if (name, port) not in fabric.cable_at:
                raise TopologyError(f"{name}:{port}", "no cable is plugged in")


def _connected(fabric: Fabric) -> None:
    parts = search.parts(fabric)
    if not fabric.nics:
        raise TopologyError(fabric.kind, "has no NIC")
    if len(parts) > 1:
        lone = min(parts, key=len)
        names = sorted(lone)
        with_it = f"with {', '.join(names[1:8])} it is " if len(names) > 1 else ""
        raise TopologyError(
            names[0], f"{with_it}not connected to the rest: {len(parts)} parts", "lay a cable between them"
        )


def _reachable(fabric: Fabric) -> None:
    """No path leads through NICs that do not forward: any two hosts need a path without other hosts' NICs."""
    closed = {s.name for s in fabric.switches if s.role == OWN_PORTS}
    if not closed:
        return
    parts = search.parts(fabric, without=closed)
    component = {node: i for i, nodes in enumerate(parts) for node in nodes}
    # What a host is beside: networks that forward, and NICs that do not; of the latter one is its own.
    beside: dict[tuple[str | None, frozenset[int], frozenset[str]], str] = {}
    for nic in fabric.nics:
        at = fabric.cable_at[nic.name, 1].other(nic.name).node
        adjacent = [at] if at not in closed else [node for node in fabric.neighbours[at] if node != nic.name]
        networks = frozenset(component[node] for node in adjacent if node not in closed)
        hosts = frozenset(node for node in adjacent if node in closed)
        beside.setdefault((at if hosts else None, networks, hosts), nic.name)
    for i, ((own, networks, _), name) in enumerate(beside.items()):
        for (_, far_networks, far_hosts), far in list(beside.items())[:i]:
            if not networks & far_networks and own not in far_hosts:
                hint = "a host's NIC carries only its own frames, unless it says `forwards: true`"
                raise TopologyError(far, f"{name} cannot be reached from {far} but through other hosts", hint)


def _once(keys: Iterable[Hashable], what: str) -> None:
    for key, count in Counter(keys).items():
        if count > 1:
            raise TopologyError(str(key), what)
