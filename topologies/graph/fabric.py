"""The fabric as a pure graph: hosts, NICs, switches, cables, scale-up domains.

Nothing here touches the machine.  A builder (ring, torus, rail, clos, star)
returns a validated `Fabric`; the other layers read it and never change it.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from functools import cached_property
from ipaddress import IPv4Address
from itertools import product
from typing import TYPE_CHECKING, Any

from topologies.graph.mistake import Mistake

if TYPE_CHECKING:
    import networkx as nx


ACCELERATORS = IPv4Address("198.18.0.0")
"""The first of the accelerators' addresses (a range that is set aside for tests of networks)."""


OWN_PORTS = "nic"
"""Role of a bridge in a NIC with several ports (or with a compute complex): it carries only its own host's frames."""

FORWARDS = "router"
"""Role of a bridge in a NIC that also forwards what is for others, as in a direct network."""

EMBEDDED = frozenset({OWN_PORTS, FORWARDS})


class TopologyError(Mistake, ValueError):
    """A topology that cannot be built: `key` is the wrong parameter, `hint` what is allowed."""

    def __init__(self, key: str, what: str, hint: str = "") -> None:
        super().__init__(what, hint, key)
        self.key = key


class OutOfBounds(TopologyError):
    """Less or more than a fabric may have."""


@dataclass(frozen=True)
class End:
    """One end of a cable: a node's name and its port number (switch ports count from 1, a NIC's port is 1)."""

    node: str
    port: int


@dataclass(frozen=True)
class Nic:
    """A network interface of a GPU: rank r drives NIC r.  The address encodes the place (see address.py)."""

    name: str  # h0, or h0.1 for GPU 1 of a rail server
    rank: int
    host: str
    gpu: int
    ip: IPv4Address
    mac: str  # 02:00 and the four bytes of the address


@dataclass(frozen=True)
class Host:
    """A server: the Mininet host in whose network namespace its ranks live."""

    name: str
    nics: tuple[str, ...]


@dataclass(frozen=True)
class Switch:
    """A switch: `role` is leaf, spine, core, rail, node or switch; `place` its coordinates or (pod, index).

    Bridges in NICs are switches, too: roles OWN_PORTS and FORWARDS.
    """

    name: str
    index: int  # position in Fabric.switches
    role: str
    place: tuple[int, ...]
    ports: int  # for cables
    accelerator: bool = False  # an aggregation unit hangs on one port more

    @property
    def accelerator_port(self) -> int | None:
        """The port of its accelerator, behind those for cables."""
        return self.ports + 1 if self.accelerator else None

    @property
    def bridge_ports(self) -> int:
        """All ports, with the accelerator's."""
        return self.ports + self.accelerator

    @property
    def accelerator_ip(self) -> IPv4Address:
        """The address of its accelerator."""
        return ACCELERATORS + self.index

    @property
    def dpid(self) -> int:
        """OpenFlow datapath id inside the fabric (index + 1; a live fabric puts its own id in the high bits)."""
        return self.index + 1


@dataclass(frozen=True)
class Cable:
    """A full-duplex cable between two ends, with a rate and a delay of its own (None: as others of its kind)."""

    a: End
    b: End
    rate_bps: float | None = None
    delay_ns: float | None = None

    @property
    def name(self) -> str:
        return f"{self.a.node}-{self.b.node}"

    def other(self, node: str) -> End:
        return self.b if self.a.node == node else self.a

    def end(self, node: str) -> End:
        return self.a if self.a.node == node else self.b


@dataclass(frozen=True)
class Fabric:
    """A whole topology.  `kind` is its registry name, `params` every parameter with defaults written out."""

    kind: str
    params: dict[str, Any]
    hosts: tuple[Host, ...]
    nics: tuple[Nic, ...]  # ordered by rank
    switches: tuple[Switch, ...]
    cables: tuple[Cable, ...]
    scale_up: tuple[tuple[str, ...], ...] = field(default=())  # NIC names of each scale-up domain
    complexes: tuple[str, ...] = field(default=())  # NICs of SmartNICs' compute complexes (smartnic.py), the last ones

    @property
    def ranks(self) -> int:
        """How many ranks the hosts have; endpoints behind them are compute complexes."""
        return len(self.nics) - len(self.complexes)

    @cached_property
    def inside(self) -> frozenset[str]:
        """The cables inside NICs: from an embedded bridge to its host and to its compute complex."""
        return frozenset(self.cable_at[nic.name, 1].name for nic in self.nics if self.bridge_of(nic.name) is not None)

    @cached_property
    def to_hosts(self) -> frozenset[str]:
        """The cables that end at a NIC which carries only its own host's frames."""
        ends = self.nic_by_name.keys() | {s.name for s in self.switches if s.role == OWN_PORTS}
        return frozenset(c.name for c in self.cables if {c.a.node, c.b.node} & ends) - self.inside

    def bridge_of(self, nic: str) -> Switch | None:
        """The bridge inside a NIC."""
        switch = self.switch_by_name.get(self.cable_at[nic, 1].other(nic).node)
        return switch if switch is not None and switch.role in EMBEDDED else None

    @cached_property
    def nic_by_name(self) -> dict[str, Nic]:
        return {n.name: n for n in self.nics}

    @cached_property
    def switch_by_name(self) -> dict[str, Switch]:
        return {s.name: s for s in self.switches}

    @cached_property
    def cable_at(self) -> dict[tuple[str, int], Cable]:
        """(node, port) -> the cable plugged in there."""
        return {(e.node, e.port): c for c in self.cables for e in (c.a, c.b)}

    @cached_property
    def cable_by_name(self) -> dict[str, Cable]:
        """Every cable under both of its names, `A-B` and `B-A`; a NIC's bridge may be called as its host is."""
        cables = {f"{c.b.node}-{c.a.node}": c for c in self.cables} | {c.name: c for c in self.cables}
        for cable in self.cables:
            for a, b in self._end_names(cable):
                if a != b:
                    cables.setdefault(f"{a}-{b}", cable)
                    cables.setdefault(f"{b}-{a}", cable)
        return cables

    def named_backwards(self, name: str) -> bool:
        """Whether this name of a cable says its second end first."""
        return name not in [f"{a}-{b}" for a, b in self._end_names(self.cable(name))]

    def _end_names(self, cable: Cable) -> list[tuple[str, str]]:
        a, b = ([end.node, *self._hosts_of.get(end.node, ())] for end in (cable.a, cable.b))
        return list(product(a, b))

    @cached_property
    def _hosts_of(self) -> dict[str, tuple[str, ...]]:
        """Bridge in a NIC -> that NIC (not a compute complex behind it)."""
        hosts: dict[str, tuple[str, ...]] = {}
        for nic in self.nics[: self.ranks]:
            if (bridge := self.bridge_of(nic.name)) is not None:
                hosts[bridge.name] = (nic.name,)
        return hosts

    @cached_property
    def neighbours(self) -> dict[str, list[str]]:
        """Switches and NICs, each with those at the other ends of its cables."""
        neighbours: dict[str, list[str]] = {name: [] for name in (*self.switch_by_name, *self.nic_by_name)}
        for cable in self.cables:
            neighbours[cable.a.node].append(cable.b.node)
            neighbours[cable.b.node].append(cable.a.node)
        return neighbours

    @cached_property
    def graph(self) -> nx.Graph[str]:
        """Switches and NICs as nodes (attribute `kind`), cables as edges (attribute `cable`)."""
        import networkx as nx  # slow to import: what every command asks does without

        g: nx.Graph[str] = nx.Graph()
        g.add_nodes_from((s.name, {"kind": "switch"}) for s in self.switches)
        g.add_nodes_from((n.name, {"kind": "nic"}) for n in self.nics)
        g.add_edges_from((c.a.node, c.b.node, {"cable": c}) for c in self.cables)
        return g

    def cable(self, name: str) -> Cable:
        """The cable called `A-B` or `B-A`.  Raises KeyError."""
        return self.cable_by_name[name]

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON-ready data; `from_dict` is its inverse."""
        d = asdict(self)
        for n in d["nics"]:
            n["ip"] = str(n["ip"])
        return d

    @classmethod
    def from_dict(cls, d: dict[str, Any]) -> Fabric:
        return cls(
            kind=d["kind"],
            params=d["params"],
            hosts=tuple(Host(h["name"], tuple(h["nics"])) for h in d["hosts"]),
            nics=tuple(Nic(**{**n, "ip": IPv4Address(n["ip"])}) for n in d["nics"]),
            switches=tuple(Switch(**{**s, "place": tuple(s["place"])}) for s in d["switches"]),
            cables=tuple(
                Cable(End(**c["a"]), End(**c["b"]), c.get("rate_bps"), c.get("delay_ns")) for c in d["cables"]
            ),
            scale_up=tuple(tuple(g) for g in d["scale_up"]),
            complexes=tuple(d.get("complexes", ())),
        )
