"""Custom: any network, named node by node and cable by cable.

Hosts have ranks in the order in which they stand.  A host with one cable hangs on its switch like any other; one with
several has a NIC with as many ports, a bridge inside (`nic<rank>`), and forwards for others only if it says so.
A switch's ports are numbered hosts first, in the order of the cables; `A:3-B` puts a cable into port 3 of switch A.
Cables take what they do not say themselves from their class (`host`, `uplink`, or one named by the cable), and what
that does not say from the fabric's `host_cable` and `cable`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from topologies.graph import address
from topologies.graph.fabric import FORWARDS, OWN_PORTS, Fabric, TopologyError
from topologies.graph.kind import Kind
from topologies.graph.params import MAX_PORTS, limit, other
from topologies.graph.wiring import Wiring

NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,9}")
"""Ten characters: a host's interfaces are called `<host>-eth0`, and the kernel takes fifteen."""

RESERVED = re.compile(r"(nic|arm)[0-9]+")
HOST, UPLINK = "host", "uplink"


@dataclass(frozen=True)
class _Lead:
    """A cable as it is named: its two nodes, and what it has of its own."""

    key: str
    a: str
    b: str
    ports: tuple[int | None, int | None]
    rate_bps: float | None
    delay_ns: float | None
    of_class: str | None


@dataclass(frozen=True)
class Custom(Kind):
    name: ClassVar[str] = "custom"
    summary: ClassVar[str] = "any network, node by node and cable by cable"

    nodes: Mapping[str, Any] = other("mapping", "`{NAME: host}` or `{NAME: switch}`")
    cables: Sequence[Any] = other("list", "`A-B`, or `{between: A-B, rate: .., delay: .., class: ..}`")
    classes: Mapping[str, Any] | tuple[()] = other(
        "mapping", "`{NAME: {rate: .., delay: ..}}`; `host` and `uplink` are the cables that name none", default=()
    )

    def build(self) -> Fabric:
        hosts, switches = self._nodes()
        leads = self._leads(hosts, switches)
        above: dict[str, list[str]] = {name: [] for name in hosts}
        for lead in leads:
            for end, far in ((lead.a, lead.b), (lead.b, lead.a)):
                if end in above:
                    above[end].append(far)
        for name, others in above.items():
            if not others:
                raise TopologyError(f"nodes[{name}]", f"no cable ends at {name}", "name one in cables")
        bridges = {
            name: f"nic{rank}"
            for rank, (name, forwards) in enumerate(hosts.items())
            if forwards or len(above[name]) > 1 or above[name][0] in hosts
        }
        for name in dict(self.classes):
            if name not in (HOST, UPLINK, *(lead.of_class for lead in leads)):
                raise TopologyError(f"classes[{name}]", "no cable is of this class", f"a cable says `class: {name}`")
        self._within_limits(hosts, switches, leads, bridges)
        return self._wired(hosts, switches, leads, bridges, above)

    @classmethod
    def in_words(cls, params: Mapping[str, Any]) -> dict[str, Any]:
        """The numbers of its parts."""
        kinds = [spec["kind"] if isinstance(spec, Mapping) else spec for spec in params["nodes"].values()]
        return {"hosts": kinds.count("host"), "switches": kinds.count("switch"), "cables": len(params["cables"])}

    def _wired(
        self,
        hosts: Mapping[str, bool],
        switches: Sequence[str],
        leads: Sequence[_Lead],
        bridges: Mapping[str, str],
        above: Mapping[str, Sequence[str]],
    ) -> Fabric:
        wiring = Wiring()
        for i, name in enumerate(switches):
            wiring.switch(name, "switch", (i,))
        for lead in leads:
            for end, port in zip((lead.a, lead.b), lead.ports, strict=True):
                if port is not None:
                    wiring.reserve(end, port)
        at = {name: i for i, name in enumerate([*switches, *bridges.values()])}
        on: dict[int, int] = {}
        for name, forwards in hosts.items():
            if name in bridges:
                wiring.switch(bridges[name], FORWARDS if forwards else OWN_PORTS, (at[bridges[name]],))
        for name in hosts:
            first = next((far for far in above[name] if far in at), bridges.get(name, ""))
            place = on[at[first]] = on.get(at[first], 0) + 1
            ends_and_rates: dict[str, Any] = {}
            if name not in bridges:
                lead = next(x for x in leads if name in (x.a, x.b))
                ports = lead.ports if lead.a == name else lead.ports[::-1]
                ends_and_rates = {"rate_bps": lead.rate_bps, "delay_ns": lead.delay_ns, "ports": ports}
            wiring.host([(name, address.custom_ip(at[first], place), bridges.get(name, first))], name, **ends_and_rates)
        for lead in leads:
            a, b = (bridges.get(end, end) for end in (lead.a, lead.b))
            if a not in hosts and b not in hosts:
                wiring.cable(a, b, lead.rate_bps, lead.delay_ns, lead.ports)
        params = {"nodes": dict(self.nodes), "cables": list(self.cables), "classes": dict(self.classes)}
        return self._classed(wiring.fabric(self.name, params), leads, bridges)

    def _classed(self, fabric: Fabric, leads: Sequence[_Lead], bridges: Mapping[str, str]) -> Fabric:
        """With what cables take from their classes."""
        named = {
            frozenset((bridges.get(x.a, x.a), bridges.get(x.b, x.b))): x.of_class
            for x in leads
            if x.of_class is not None
        }
        cables, classes = [], dict(self.classes)
        for cable in fabric.cables:
            if cable.name not in fabric.inside:
                default = HOST if cable.name in fabric.to_hosts else UPLINK
                of = classes.get(named.get(frozenset((cable.a.node, cable.b.node)), default)) or {}
                rate = of.get("rate_bps") if cable.rate_bps is None else cable.rate_bps
                delay = of.get("delay_ns") if cable.delay_ns is None else cable.delay_ns
                cable = replace(cable, rate_bps=rate, delay_ns=delay)
            cables.append(cable)
        return replace(fabric, cables=tuple(cables))

    def _nodes(self) -> tuple[dict[str, bool], list[str]]:
        """Hosts, with whether they forward, and switches."""
        hosts: dict[str, bool] = {}
        switches: list[str] = []
        if not isinstance(self.nodes, Mapping) or not self.nodes:
            raise TopologyError("nodes", "is a mapping of names to kinds", "nodes: {h0: host, sw0: switch}")
        for name, spec in self.nodes.items():
            key = f"nodes[{name}]"
            if not isinstance(name, str) or not NAME.fullmatch(name) or RESERVED.fullmatch(name):
                what = f"{str(name)[:40]!r} is no name for a node"
                raise TopologyError(key, what, "a letter, then up to 9 letters, digits or _; not nic0 or arm0")
            kind = spec.get("kind") if isinstance(spec, Mapping) else spec
            forwards = spec.get("forwards", False) if isinstance(spec, Mapping) else False
            if kind not in ("host", "switch"):
                raise TopologyError(key, f"{str(kind)[:40]!r} is no kind of node", "host or switch")
            if kind == "switch":
                if forwards:
                    raise TopologyError(key, "every switch forwards", "leave `forwards` out")
                switches.append(name)
            else:
                hosts[name] = bool(forwards)
        if not hosts:
            raise TopologyError("nodes", "there is no host", "name at least one: {h0: host}")
        return hosts, switches

    def _leads(self, hosts: Mapping[str, bool], switches: Sequence[str]) -> list[_Lead]:
        known, classes = [*hosts, *switches], dict.fromkeys([*dict(self.classes), HOST, UPLINK])
        leads: list[_Lead] = []
        first: dict[frozenset[str], int] = {}
        ports: dict[tuple[str, int], int] = {}
        if not isinstance(self.cables, Sequence) or isinstance(self.cables, str):
            raise TopologyError("cables", "is a list of cables", "cables: [h0-sw0, h1-sw0]")
        for i, spec in enumerate(self.cables):
            key = f"cables[{i}]"
            fields = spec if isinstance(spec, Mapping) else {"between": spec}
            left, dash, right = str(fields.get("between")).partition("-")
            if not dash:
                raise TopologyError(key, f"{str(fields.get('between'))[:60]!r} is no cable", "A-B, two nodes")
            (a, a_port), (b, b_port) = self._end(key, left, hosts), self._end(key, right, hosts)
            for end, port in ((a, a_port), (b, b_port)):
                if port is not None and (other := ports.setdefault((end, port), i)) != i:
                    raise TopologyError(key, f"port {port} of {end} has a cable", f"it is that of cables[{other}]")
                if end not in known:
                    names = ", ".join(known[:8]) + (" .." if len(known) > 8 else "")
                    raise TopologyError(key, f"there is no node {end[:40]!r}", f"nodes: {names}")
            if a == b:
                raise TopologyError(key, f"joins {a} to itself", "two different nodes")
            if (pair := frozenset((a, b))) in first:
                raise TopologyError(key, f"{a}-{b} is cabled twice", f"it is already cables[{first[pair]}]")
            first[pair] = i
            of_class = fields.get("class")
            if of_class is not None and of_class not in classes:
                raise TopologyError(key, f"there is no class {of_class!r}", f"classes: {', '.join(classes)}")
            leads.append(_Lead(key, a, b, (a_port, b_port), fields.get("rate_bps"), fields.get("delay_ns"), of_class))
        return leads

    def _end(self, key: str, text: str, hosts: Mapping[str, bool]) -> tuple[str, int | None]:
        """`A`, or `A:3`."""
        name, colon, port = text.partition(":")
        if not colon:
            return name, None
        if name in hosts:
            raise TopologyError(key, f"the ports of a host's NIC have no numbers here: {text[:40]!r}", name)
        if not (port.isascii() and port.isdecimal() and len(port) < 6 and int(port)):
            raise TopologyError(key, f"{port[:20]!r} is no port", f"a number from 1 on: {name[:20]}:1")
        return name, int(port)

    def _within_limits(
        self, hosts: Mapping[str, bool], switches: Sequence[str], leads: Sequence[_Lead], bridges: Mapping[str, str]
    ) -> None:
        limit("nodes", nics=len(hosts), switches=len(switches) + len(bridges), ports={})
        used: dict[str, int] = {}
        for lead in leads:
            for end in (lead.a, lead.b):
                used[end] = used.get(end, 1 if end in bridges else 0) + 1
                if used[end] > MAX_PORTS:
                    raise TopologyError(lead.key, f"{end} would need {used[end]} ports", f"at most {MAX_PORTS}")
        for lead in leads:
            for end, port in zip((lead.a, lead.b), lead.ports, strict=True):
                if port is not None and port > used[end]:
                    hint = f"it has {used[end]} cables, and ports without gaps"
                    raise TopologyError(lead.key, f"port {port} of {end} is too far up", hint)
        for name in switches:
            if name not in used:
                raise TopologyError(f"nodes[{name}]", f"no cable ends at {name}", "name one in cables")
