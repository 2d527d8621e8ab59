"""Off-path SmartNICs as topology: an embedded bridge in every NIC, and a compute complex behind it.

From a fabric of NICs `h0 ..` on switches it makes one in which NIC r's cable ends in a switch `nic<r>`, whose ports are
the host's side of the NIC (1), the compute complex `arm<r>` (2) and the cable (3).  The bridges are switches like any
other, so routing, captures and faults need to know nothing of them.  A complex is an endpoint with a namespace and an
address of its own: that of its host with bit 23 set, so that prefixes of hosts and of complexes stay apart.  Ranks of
hosts do not change; complex r of n has rank n + r, and takes part only in collectives that ask for it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from ipaddress import IPv4Address

from topologies.graph import address
from topologies.graph.fabric import EMBEDDED, OWN_PORTS, Cable, End, Fabric, Host, Nic, Switch, TopologyError
from topologies.graph.params import MAX_NICS, MAX_SWITCHES
from topologies.graph.validate import validate

ROLE = OWN_PORTS
"""Role of an embedded bridge."""

HOST_PORT, COMPLEX_PORT, CABLE_PORT = 1, 2, 3

_COMPLEX_BIT = 1 << 23


def with_complexes(fabric: Fabric) -> Fabric:
    """The same fabric with an off-path SmartNIC at every host.  Raises TopologyError where that is too much."""
    n = len(fabric.nics)
    if any(s.role in EMBEDDED for s in fabric.switches):
        what = "the NICs of this topology have a bridge of their own, without a compute complex"
        raise TopologyError("kind", what, "kind: plain or on_path; or a topology without `direct` and `links`")
    if 2 * n > MAX_NICS:
        raise TopologyError("kind", f"{n} SmartNICs are {2 * n} endpoints", f"at most {MAX_NICS} in a fabric")
    if len(fabric.switches) + n > MAX_SWITCHES:
        what = f"{n} embedded bridges and {len(fabric.switches)} switches are too many"
        raise TopologyError("kind", what, f"at most {MAX_SWITCHES} in a fabric")
    for nic in fabric.nics:
        if int(nic.ip) & _COMPLEX_BIT:
            raise TopologyError(
                "kind", f"no address is left for the complex of {nic.name} ({nic.ip})", "at most 128 rails or pods"
            )
    complexes = tuple(_complex(nic, n) for nic in fabric.nics)
    return validate(
        Fabric(
            kind=fabric.kind,
            params=fabric.params,
            hosts=(*fabric.hosts, *(Host(c.name, (c.name,)) for c in complexes)),
            nics=(*fabric.nics, *complexes),
            switches=(*fabric.switches, *_bridges(fabric)),
            cables=tuple(_cables(fabric)),
            scale_up=fabric.scale_up,
            complexes=tuple(c.name for c in complexes),
        )
    )


def capped(fabric: Fabric, port_bps: float, cable_bps: float) -> Fabric:
    """The same with no cable into a SmartNIC faster than its port.  `cable_bps`: of cables without their own rate."""
    bridges = {s.name for s in fabric.switches if s.role == ROLE}

    def cap(cable: Cable) -> Cable:
        rate = cable_bps if cable.rate_bps is None else cable.rate_bps
        return replace(cable, rate_bps=port_bps) if _uplink(cable, bridges) and rate > port_bps else cable

    cables = tuple(map(cap, fabric.cables))
    return fabric if cables == fabric.cables else replace(fabric, cables=cables)


def without_complexes(fabric: Fabric) -> Fabric:
    """The inverse: NICs on their switches."""
    if not fabric.complexes:
        return fabric
    hidden = {s.name for s in fabric.switches if s.role == ROLE}
    cables = []
    for cable in fabric.cables:
        if not hidden & {cable.a.node, cable.b.node}:
            cables.append(cable)
        elif (end := _uplink(cable, hidden)) is not None:
            bridge = end.node
            host = next(c.other(bridge) for c in fabric.cables if c.end(bridge) == End(bridge, HOST_PORT))
            cables.append(replace(cable, a=host) if cable.a == end else replace(cable, b=host))
    return Fabric(
        kind=fabric.kind,
        params=fabric.params,
        hosts=fabric.hosts[: -len(fabric.complexes)],
        nics=fabric.nics[: fabric.ranks],
        switches=tuple(s for s in fabric.switches if s.role != ROLE),
        cables=tuple(cables),
        scale_up=fabric.scale_up,
    )


def _uplink(cable: Cable, bridges: set[str]) -> End | None:
    """The end at an embedded bridge of a cable that leads out of it."""
    for end in (cable.a, cable.b):
        if end.node in bridges and end.port == CABLE_PORT:
            return end
    return None


def _complex(nic: Nic, ranks: int) -> Nic:
    ip = IPv4Address(int(nic.ip) | _COMPLEX_BIT)
    name = f"arm{nic.rank}"
    return Nic(name, ranks + nic.rank, name, 0, ip, address.mac(ip))


def _bridges(fabric: Fabric) -> Iterator[Switch]:
    """The embedded bridges, each in the place of the switch that its NIC is cabled to."""
    for nic in fabric.nics:
        above = fabric.switch_by_name[fabric.cable_at[nic.name, 1].other(nic.name).node]
        yield Switch(f"nic{nic.rank}", len(fabric.switches) + nic.rank, ROLE, above.place, 3)


def _cables(fabric: Fabric) -> Iterator[Cable]:
    """The fabric's own cables, a NIC's now from its bridge on; then those inside the NICs."""
    bridge = {nic.name: f"nic{nic.rank}" for nic in fabric.nics}

    def end(of: End) -> End:
        return End(bridge[of.node], CABLE_PORT) if of.node in bridge else of

    for cable in fabric.cables:
        yield replace(cable, a=end(cable.a), b=end(cable.b))
    for nic in fabric.nics:
        yield Cable(End(nic.name, 1), End(bridge[nic.name], HOST_PORT))
        yield Cable(End(f"arm{nic.rank}", 1), End(bridge[nic.name], COMPLEX_PORT))
