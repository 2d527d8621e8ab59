"""Faults of forwarding, through OpenFlow: the controller installs wrong flows, or is itself slow, dead or hung."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from pydantic import Field

from testbed.base.types import Rate, Size, Time
from testbed.faults.base import Fault, Place, Primitive, ShowsAs, act
from testbed.faults.built import Built, CannotInject, more
from topologies.graph.targets import PortTarget, SwitchTarget
from topologies.kinds import DIMENSION_ORDER


class FlowFault(Fault):
    """`forwarding` is the kind in controllers/flows/faults.py."""

    on: ClassVar[tuple[str, ...]] = ("switch",)
    mended_by: ClassVar[tuple[str, ...]] = ("flow resync",)
    forwarding: ClassVar[str]

    def spec(self, place: Place) -> dict[str, Any]:
        """What the controller has to know besides the kind."""
        switch = {"switch": place.target.switch.name} if isinstance(place.target, SwitchTarget) else {}
        return {**switch, **self.values()}

    def primitives(self, place: Place) -> list[Primitive]:
        return [act("controller", {"forwarding": self.forwarding, **self.spec(place)})]


class ToRank(FlowFault):
    sets: ClassVar[Mapping[str, str]] = {"to": "to"}

    to: int = Field(ge=0, description="rank whose frames it strikes")

    def spec(self, place: Place) -> dict[str, Any]:
        if self.to >= len(place.fabric.nics):
            raise CannotInject(f"there is no rank {self.to}", f"ranks: 0 to {len(place.fabric.nics) - 1}", "to")
        return super().spec(place)


class MissingEntry(ToRank):
    name: ClassVar[str] = "missing_entry"
    summary: ClassVar[str] = "a switch has no entry for a destination: where its route is to a prefix, for none there"
    shows: ClassVar[str] = "drops `forwarding` at that switch with the frames' headers"
    example: ClassVar[dict[str, Any]] = {"on": "switch:leaf0", "to": 0}
    forwarding: ClassVar[str] = "missing"


class ShadowRule(ToRank):
    name: ClassVar[str] = "shadow_rule"
    summary: ClassVar[str] = "a rule of higher priority drops a destination's frames; the right entry is there"
    shows: ClassVar[str] = "drops `forwarding` although `ovs-ofctl dump-flows` shows the route"
    example: ClassVar[dict[str, Any]] = {"on": "switch:leaf0", "to": 0}
    forwarding: ClassVar[str] = "shadow"


class WrongPort(ToRank):
    name: ClassVar[str] = "wrong_port"
    summary: ClassVar[str] = "a destination's frames leave by a wrong port"
    shows: ClassVar[str] = "drops `no_qp` at a NIC that they are not for, or a detour"
    example: ClassVar[dict[str, Any]] = {"on": "switch:leaf0", "to": 0, "port": 2}
    forwarding: ClassVar[str] = "wrong_port"
    sets: ClassVar[Mapping[str, str]] = {"to": "to", "port": "port"}

    port: int = Field(ge=1, description="the port that they leave by")

    def spec(self, place: Place) -> dict[str, Any]:
        assert isinstance(place.target, SwitchTarget)
        if self.port > place.target.switch.ports:
            hint = f"ports 1 to {place.target.switch.ports}"
            raise CannotInject(f"{place.target} has no port {self.port}", hint, "port")
        return super().spec(place)


class Loop(ToRank):
    name: ClassVar[str] = "loop"
    summary: ClassVar[str] = "two neighbours send a destination's frames to each other"
    shows: ClassVar[str] = "drops `ttl` at both, and a cable that is full of the same frames"
    example: ClassVar[dict[str, Any]] = {"on": "switch:leaf0", "to": 2, "neighbour": "spine0"}
    forwarding: ClassVar[str] = "loop"

    neighbour: str = Field(description="the other switch")

    def spec(self, place: Place) -> dict[str, Any]:
        spec = super().spec(place)
        near = [c.other(spec["switch"]).node for c in place.fabric.cables if spec["switch"] in (c.a.node, c.b.node)]
        if self.neighbour not in near or self.neighbour not in place.fabric.switch_by_name:
            switches = ", ".join(dict.fromkeys(n for n in near if n in place.fabric.switch_by_name))
            what = f"{self.neighbour} is no neighbour of {spec['switch']}"
            raise CannotInject(what, f"its neighbours: {switches}" if switches else "no switch is", "neighbour")
        return {**spec, "with": self.neighbour}

    def resources(self, place: Place) -> tuple[str, ...]:
        return (*super().resources(place), f"switch:{self.neighbour}")


class Meter(ToRank):
    """Open vSwitch's own meters count wall time, so the bucket is fabricd's, and counts the fabric's."""

    name: ClassVar[str] = "meter"
    summary: ClassVar[str] = "a switch polices a destination's frames: a meter with a drop band"
    shows: ClassVar[str] = "drops `fault` at that switch as soon as more than the meter's rate goes to that rank"
    example: ClassVar[dict[str, Any]] = {"on": "switch:leaf0", "to": 0, "rate": "20Gbps"}
    shows_as: ClassVar[ShowsAs | None] = "meter"

    rate: Rate = Field(gt=0, description="the meter's rate")
    burst: Size = Field(
        default=65_536, ge=10_000, le=1_000_000_000, description="the bucket, which is full in the beginning"
    )

    def primitives(self, place: Place) -> list[Primitive]:
        switch = self.spec(place)["switch"]
        ends = [c.other(switch) for c in place.cables()]
        select = {"meter": {"rate_bps": self.rate, "burst_bytes": self.burst}}
        ports = [f"{end.node}:{end.port}" for end in ends]
        frames = {"primitive": "frames", "effect": "drop", "ports": ports, "select": select, "shown": self.shows_as}
        return [{**frames, "match": {"dst_rank": self.to}}]


class DeadMember(FlowFault):
    name: ClassVar[str] = "dead_ecmp_member"
    summary: ClassVar[str] = "a member of an ECMP group is dead, and the hash still chooses it"
    shows: ClassVar[str] = "drops `forwarding` for some of the flows to a destination, none for the others"
    example: ClassVar[dict[str, Any]] = {"on": "port:leaf0:3"}
    on: ClassVar[tuple[str, ...]] = ("port",)
    adaptive: ClassVar[bool | None] = False
    forwarding: ClassVar[str] = "dead_member"

    def spec(self, place: Place) -> dict[str, Any]:
        assert isinstance(place.target, PortTarget)
        if place.target.cable.other(place.target.switch.name).node not in place.fabric.switch_by_name:
            raise CannotInject(f"{place.target} leads to a host", "name a port with an equal one beside it")
        return {"switch": place.target.switch.name, "port": place.target.port}


class PolarisedHash(FlowFault):
    name: ClassVar[str] = "polarised_hash"
    summary: ClassVar[str] = "all switches hash alike, so that two in a row always choose alike"
    shows: ClassVar[str] = "some of several equal links are full while others stay empty"
    example: ClassVar[dict[str, Any]] = {"on": "all"}
    on: ClassVar[tuple[str, ...]] = ("all",)
    adaptive: ClassVar[bool | None] = False
    mended_by: ClassVar[tuple[str, ...]] = ()  # it is configured so
    forwarding: ClassVar[str] = "polarised"


class DatelineOff(FlowFault):
    name: ClassVar[str] = "dateline_off"
    summary: ClassVar[str] = "no dateline: what wraps around a torus or ring stays in the class of all others"
    shows: ClassVar[str] = (
        "event `deadlock` with a circle of ports that pause each other, as soon as their buffers are full; nothing in "
        "the second class"
    )
    example: ClassVar[dict[str, Any]] = {"on": "all"}
    on: ClassVar[tuple[str, ...]] = ("all",)
    only_on: ClassVar[frozenset[str]] = DIMENSION_ORDER
    mended_by: ClassVar[tuple[str, ...]] = ()  # it is configured so
    forwarding: ClassVar[str] = "dateline_off"


class TableFull(FlowFault):
    name: ClassVar[str] = "table_full"
    summary: ClassVar[str] = "a switch refuses flows beyond a number"
    shows: ClassVar[str] = "drops `forwarding` there for destinations whose flows came last"
    example: ClassVar[dict[str, Any]] = {"on": "switch:leaf0", "flows": 2}
    mended_by: ClassVar[tuple[str, ...]] = ()  # the table is as small afterwards
    forwarding: ClassVar[str] = "table_full"
    sets: ClassVar[Mapping[str, str]] = {"flows": "flows"}

    flows: int = Field(ge=0, description="how many it takes")


class PartialWrite(FlowFault):
    name: ClassVar[str] = "partial_write"
    summary: ClassVar[str] = "only a part of a switch's flows was written"
    shows: ClassVar[str] = "drops `forwarding` there for the rest"
    example: ClassVar[dict[str, Any]] = {"on": "switch:leaf0", "share": 0.5}
    forwarding: ClassVar[str] = "partial"
    sets: ClassVar[Mapping[str, str]] = {"share": "share"}

    share: float = Field(ge=0, lt=1, allow_inf_nan=False, description="how large a share was")


class SlowController(Fault):
    name: ClassVar[str] = "slow_controller"
    summary: ClassVar[str] = "the controller takes longer to react to a port that goes down"
    shows: ClassVar[str] = "drops `cable` for that much longer after a cut"
    example: ClassVar[dict[str, Any]] = {"on": "controller", "reaction": "5ms"}
    on: ClassVar[tuple[str, ...]] = ("controller",)
    mended_by: ClassVar[tuple[str, ...]] = ("controller restart",)

    reaction: Time = Field(ge=0, le=1e12, description="emulated time until its rules take effect: more than without")

    def primitives(self, place: Place) -> list[Primitive]:
        return [{"primitive": "params", "control": True, "values": {"reaction_ns": self.reaction}}]

    def makes_worse(self, place: Place, built: Built) -> None:
        more("reaction", self.reaction, [(built.hardware.reaction_ns, "the controller")], "time", "the reaction")


class ControllerFault(Fault):
    on: ClassVar[tuple[str, ...]] = ("controller",)
    mended_by: ClassVar[tuple[str, ...]] = ("controller restart",)
    state: ClassVar[str]

    def primitives(self, place: Place) -> list[Primitive]:
        return [act("agent", {"controller": self.state})]


class ControllerDead(ControllerFault):
    name: ClassVar[str] = "controller_dead"
    summary: ClassVar[str] = "the controller is killed; healing starts it again"
    shows: ClassVar[str] = "forwarding goes on, but a cable that is cut is never routed around"
    example: ClassVar[dict[str, Any]] = {"on": "controller"}
    state: ClassVar[str] = "dead"


class ControllerHung(ControllerFault):
    name: ClassVar[str] = "controller_hung"
    summary: ClassVar[str] = "the controller stands still; its connections stay open"
    shows: ClassVar[str] = "as dead, and `controller_timeouts`: events that it did not answer (nobody waits for it)"
    example: ClassVar[dict[str, Any]] = {"on": "controller"}
    state: ClassVar[str] = "hung"


FAULTS = (
    MissingEntry, ShadowRule, WrongPort, Loop, Meter, DeadMember, PolarisedHash, DatelineOff, TableFull, PartialWrite,
    SlowController, ControllerDead, ControllerHung,
)  # fmt: skip
