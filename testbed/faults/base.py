"""A fault: its parameters, its possible targets, its requests to fabricd (primitives), and by what it is seen.

No fault has code to undo it: fabricd, the controller and the agent keep the configuration apart from the faults that
override it, so a fault is healed by removing its primitives.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, get_type_hints

from pydantic import ConfigDict, Field

from testbed.base.types import Model
from testbed.faults.built import Built, CannotInject
from topologies.graph.fabric import Cable, Fabric, Nic
from topologies.graph.targets import (
    AllTarget,
    CableTarget,
    ControllerTarget,
    FlowTarget,
    NicTarget,
    PortTarget,
    SwitchTarget,
    Target,
)

Primitive = dict[str, Any]
"""A request to fabricd's `inject`, without id and times."""

Direction = Literal["both", "forward", "backward"]
ShowsAs = Literal["silent", "crc", "acl", "meter"]
TrafficClass = Annotated[int, Field(ge=0, le=7)]
Opcode = Literal[
    "SEND_FIRST", "SEND_MIDDLE", "SEND_LAST", "SEND_LAST_IMM", "SEND_LAST_INV", "SEND_ONLY", "SEND_ONLY_IMM",
    "SEND_ONLY_INV", "WRITE_FIRST",
    "WRITE_MIDDLE", "WRITE_LAST", "WRITE_LAST_IMM", "WRITE_ONLY", "WRITE_ONLY_IMM", "READ_REQUEST",
    "READ_RESPONSE_FIRST", "READ_RESPONSE_MIDDLE", "READ_RESPONSE_LAST", "READ_RESPONSE_ONLY", "COMPARE_SWAP",
    "FETCH_ADD", "ATOMIC_ACKNOWLEDGE", "ACKNOWLEDGE", "UD_SEND_ONLY", "UD_SEND_ONLY_IMM", "CNP", "CREDIT",
    "REQUEST", "READ_ACK",
]  # fmt: skip
KINDS: dict[str, type[Target]] = {
    "cable": CableTarget,
    "port": PortTarget,
    "nic": NicTarget,
    "switch": SwitchTarget,
    "flow": FlowTarget,
    "controller": ControllerTarget,
    "all": AllTarget,
}


def fault_id(part: str) -> str:
    """The id of the fault that a primitive, such as f1.2, is a part of."""
    return part.partition(".")[0]


@dataclass(frozen=True)
class Place:
    """A fault's target, with what the fault may need to know of the fabric."""

    fabric: Fabric
    target: Target
    line_rate_bps: float = 400e9
    seed: int = 1
    cc: str | None = None  # the NICs' congestion control; None: not known
    backwards: bool = False  # the target is a cable that was named from its second end
    programs: bool = False  # ranks run programs besides workers: a live fabric with the real clock
    built: Built | None = None  # what its parts have by the experiment; None: not known

    @property
    def kind(self) -> str:
        return next(name for name, cls in KINDS.items() if isinstance(self.target, cls))

    def cables(self) -> list[Cable]:
        match self.target:
            case CableTarget(cable) | PortTarget(cable=cable):
                return [cable]
            case NicTarget(nic):
                end = self._outer(nic)
                inside = self.fabric.inside if end in self.fabric.switch_by_name else ()  # these lead to no cable
                return [c for c in self.fabric.cables if end in (c.a.node, c.b.node) and c.name not in inside]
            case SwitchTarget(switch):
                return [c for c in self.fabric.cables if switch.name in (c.a.node, c.b.node)]
            case AllTarget(cables):
                return list(cables)
        raise CannotInject(f"{self.target} has no cable of its own")

    def _outer(self, nic: Nic) -> str:
        """Where a NIC's cables end: at the bridge inside, if it has one."""
        bridge = self.fabric.bridge_of(nic.name)
        return nic.name if bridge is None else bridge.name

    def switches(self) -> list[str]:
        match self.target:
            case SwitchTarget(switch) | PortTarget(switch=switch):
                return [switch.name]
            case AllTarget():
                return [s.name for s in self.fabric.switches]
        raise CannotInject(f"{self.target} is no switch")

    def nics(self) -> list[int]:
        match self.target:
            case NicTarget(nic):
                return [nic.rank]
            case AllTarget():
                return [n.rank for n in self.fabric.nics]
        raise CannotInject(f"{self.target} is no NIC")

    def directions(self, direction: Direction) -> list[str]:
        """The ports, NODE:PORT, that frames leave by; `forward` is from the first end that a cable's name says."""
        match self.target:
            case PortTarget(switch, port):
                return [f"{switch.name}:{port}"]
            case FlowTarget(source, destination):
                forward, backward = f"{source.name}:1", f"{destination.name}:1"
                return {"both": [forward, backward], "forward": [forward], "backward": [backward]}[direction]
            case SwitchTarget(switch):
                return [f"{switch.name}:{c.end(switch.name).port}" for c in self.cables()]
        ports = []
        for cable in self.cables():
            ends = [f"{end.node}:{end.port}" for end in (cable.a, cable.b)]
            if self.backwards or (isinstance(self.target, NicTarget) and cable.a.node != self._outer(self.target.nic)):
                ends.reverse()
            ports += {"both": ends, "forward": ends[:1], "backward": ends[1:]}[direction]
        return ports


class Fault(Model):
    """One fault. Its fields are its parameters; the class says the rest."""

    model_config = ConfigDict(defer_build=True)  # of the many faults a run uses few or none

    name: ClassVar[str]
    summary: ClassVar[str]
    shows: ClassVar[str]
    """How it is seen: counters, events, symptoms."""
    example: ClassVar[dict[str, Any]]
    """As it may be written beside its name: on a clos of 2 leaves, 2 spines and 2 hosts a leaf, with DCQCN and
    accelerators.  For docs, and for tests that go through the catalogue."""
    on: ClassVar[tuple[str, ...]]
    """Kinds of targets that it can strike."""
    only_real_clock: ClassVar[bool] = False
    only_on: ClassVar[frozenset[str]] = frozenset()
    """Kinds of topology that it is for; empty: all."""
    adaptive: ClassVar[bool | None] = None
    """Only for switches that choose among equal ports (true), or that hash (false); None: for both."""
    sprays: ClassVar[bool] = False
    """Only where packets of NICs choose their path."""
    cable_credits: ClassVar[bool | None] = None
    """Only for cables under credits (true), or with pauses (false); None: for both."""
    trims: ClassVar[bool] = False
    """Only where switches trim."""
    grants: ClassVar[bool] = False
    """Only where the NICs' congestion control goes by receivers' credit."""
    shows_as: ClassVar[ShowsAs | None] = None
    """What an operator's counters call the frames that it drops; None: it drops none by itself."""
    sets: ClassVar[Mapping[str, str]] = {}
    """Keys of its primitives, each with the parameter that is its value."""
    mended_by: ClassVar[tuple[str, ...]] = ()
    """Words of the operator's actions (testbed/operate) that remove its cause, at one of its `resources`. Others may
    configure it away, or lead the traffic around it."""

    def resources(self, place: Place) -> tuple[str, ...]:
        """Every right name of what is at fault, as targets, the usual one first. A cable is the ports at its ends."""
        return wire(place) if place.kind == "cable" else (str(place.target),)

    def values(self) -> dict[str, Any]:
        return {key: getattr(self, parameter) for key, parameter in self.sets.items()}

    def makes_worse(self, place: Place, built: Built) -> None:
        """Raises CannotInject if the target's parts have no more than the fault would leave them."""

    def primitives(self, place: Place) -> list[Primitive]:
        """What is asked of fabricd. Raises CannotInject."""
        raise NotImplementedError


Fault.__annotations__ = get_type_hints(Fault, include_extras=True)  # else pydantic reads them anew for each subclass


def wire(place: Place) -> tuple[str, ...]:
    """The cable of a target by all its names: itself, its ports, its NIC, which comes with its cable."""
    names = []
    for cable in place.cables():
        names.append(f"cable:{cable.name}")
        for end in (cable.a, cable.b):
            nic = place.fabric.nic_by_name.get(end.node)
            names.append(f"port:{end.node}:{end.port}" if nic is None else f"nic:{nic.rank}")
    return tuple(dict.fromkeys([*names, str(place.target)]))


class OfWire(Fault):
    """A fault between two ports: of a cable, a port or a NIC it is the cable with its plugs.

    So another cable mends it; another NIC comes with its cable.
    """

    mended_by: ClassVar[tuple[str, ...]] = ("cable replace", "nic replace")

    def resources(self, place: Place) -> tuple[str, ...]:
        return wire(place) if place.kind in ("cable", "port", "nic") else super().resources(place)


class FrameFault(OfWire):
    """A fault that strikes some of the frames that leave a port."""

    on: ClassVar[tuple[str, ...]] = ("cable", "port", "nic", "switch", "flow", "all")

    direction: Direction = Field(
        default="both", description="`forward`: frames from the first node of the target's name; `backward`: to it"
    )
    classes: list[TrafficClass] | None = Field(
        default=None, min_length=1, description="only frames in these classes (null: all)"
    )
    opcodes: list[Opcode] | None = Field(
        default=None, min_length=1, description="only frames with these RoCE opcodes (null: all)"
    )
    of_dscp: int | None = Field(default=None, ge=0, le=63, description="only frames with this DSCP (null: all)")
    qp: int | None = Field(default=None, ge=0, le=(1 << 24) - 1, description="only to this queue pair (null: all)")

    effect: ClassVar[str]

    def select(self) -> dict[str, Any]:
        """Which of the frames that match."""
        return {}

    def primitives(self, place: Place) -> list[Primitive]:
        match = {"classes": self.classes, "opcodes": self.opcodes, "dscp": self.of_dscp, "qp": self.qp}
        shown = {"shown": self.shows_as} if self.shows_as else {}
        common = {"primitive": "frames", "effect": self.effect, "select": self.select(), **shown, **self.values()}
        given = {key: value for key, value in match.items() if value is not None}
        if isinstance(place.target, FlowTarget):
            return [{**common, **one} for one in self._of_flow(place.target, given)]
        return [{**common, "ports": place.directions(self.direction), "match": given}]

    def _of_flow(self, flow: FlowTarget, given: Mapping[str, Any]) -> Iterator[Primitive]:
        forward, backward = (flow.source, flow.destination), (flow.destination, flow.source)
        pairs = {"forward": [forward], "backward": [backward], "both": [forward, backward]}
        for source, destination in pairs[self.direction]:
            match = {**given, "src_rank": source.rank, "dst_rank": destination.rank}
            yield {"ports": [f"{source.name}:1"], "match": match}


def overlay(what: str, name: object, values: Mapping[str, Any]) -> Primitive:
    """Parameters that override those of a cable, port, switch or nic."""
    return {"primitive": "params", what: name, "values": dict(values)}


def act(to: Literal["controller", "agent"], spec: Mapping[str, Any]) -> Primitive:
    """A request to the controller or the testbed's agent."""
    return {"primitive": "act", "to": to, "spec": dict(spec)}
