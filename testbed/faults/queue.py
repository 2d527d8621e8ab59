"""Faults of buffers, marking, pausing and scheduling."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from testbed.base.types import Size, Time, default, mistake
from testbed.faults.base import Fault, Place, Primitive, TrafficClass, overlay, wire
from testbed.faults.built import Built, less

SWITCHES = ("switch", "all")
Class = Field(default=3, ge=0, le=7, description="the class")


class SwitchFault(Fault):
    on: ClassVar[tuple[str, ...]] = SWITCHES

    def primitives(self, place: Place) -> list[Primitive]:
        return [overlay("switch", name, self.values()) for name in place.switches()]


class SmallBuffer(SwitchFault):
    name: ClassVar[str] = "small_buffer"
    summary: ClassVar[str] = "a switch has less buffer than it should"
    shows: ClassVar[str] = "pauses, or drops `lossy` and `tail`, long before the others'"
    example: ClassVar[dict[str, Any]] = {"on": "switch:leaf0", "size": "800KB"}
    sets: ClassVar[Mapping[str, str]] = {"buffer_bytes": "size"}

    size: Size = Field(gt=0, le=10**12, description="its packet buffer: less than without")

    def makes_worse(self, place: Place, built: Built) -> None:
        has = [(built.hardware.switch_buffer_bytes, name) for name in place.switches()]
        less("size", self.size, has, "size", "the buffer")


class EcnOff(SwitchFault):
    name: ClassVar[str] = "ecn_off"
    summary: ClassVar[str] = "a switch does not mark"
    shows: ClassVar[str] = "no `ecn_marked` there however long its queues, pauses instead"
    example: ClassVar[dict[str, Any]] = {"on": "switch:leaf0"}

    priority: int = Class

    def values(self) -> dict[str, Any]:
        return {"ecn": {str(self.priority): None}}


class EcnThresholds(SwitchFault):
    name: ClassVar[str] = "ecn_thresholds"
    summary: ClassVar[str] = "a switch marks too early or too late"
    shows: ClassVar[str] = "too early: marks on short queues, rates far below the link's; too late: pauses before marks"
    example: ClassVar[dict[str, Any]] = {"on": "switch:leaf0", "kmin": "5KB", "kmax": "5KB"}

    priority: int = Class
    kmin: Size = Field(le=10**12, description="queue up to which nothing is marked")
    kmax: Size = Field(le=10**12, description="queue above which everything is")
    pmax: float = Field(default=1.0, ge=0, le=1, allow_inf_nan=False, description="share of marked frames at kmax")

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if self.kmin > self.kmax:
            raise mistake("kmin is larger than kmax", "marking grows from kmin to kmax", ["kmin"])
        return self

    def values(self) -> dict[str, Any]:
        return {"ecn": {str(self.priority): {"kmin_bytes": self.kmin, "kmax_bytes": self.kmax, "pmax": self.pmax}}}


class WrongDscpMap(SwitchFault):
    name: ClassVar[str] = "wrong_dscp_map"
    summary: ClassVar[str] = "one switch puts a DSCP into another class than all others"
    shows: ClassVar[str] = "that switch counts the traffic in another class: lossy where it should be lossless"
    example: ClassVar[dict[str, Any]] = {"on": "switch:leaf0", "dscp": 26, "to": 0}

    dscp: int = Field(default=26, ge=0, le=63, description="the DSCP")
    to: int = Field(default=0, ge=0, le=7, description="the class that it gets")

    def values(self) -> dict[str, Any]:
        return {"dscp": {str(self.dscp): self.to}}


class WrongWeights(SwitchFault):
    name: ClassVar[str] = "wrong_weights"
    summary: ClassVar[str] = "a switch's scheduler favours the wrong class"
    shows: ClassVar[str] = "shares of the link that differ from those elsewhere when two classes are busy"
    example: ClassVar[dict[str, Any]] = {"on": "switch:leaf0", "priority": 3, "weight": 10}

    priority: int = Class
    weight: int = Field(ge=1, le=100, description="its weight among the classes that share")

    def values(self) -> dict[str, Any]:
        return {"weights": {str(self.priority): self.weight}}


class Watchdog(SwitchFault):
    name: ClassVar[str] = "short_watchdog"
    summary: ClassVar[str] = "the PFC watchdog takes ordinary pauses for a storm"
    shows: ClassVar[str] = "events `pfc_watchdog` and drops `watchdog` in a lossless class"
    example: ClassVar[dict[str, Any]] = {"on": "switch:leaf0", "detect": "1us", "restore": "5us"}

    detect: Time = default("1us", "a pause of this length is a storm to it: a shorter one than without", gt=0, le=1e12)
    restore: Time = default("10us", "the storm is over after this long without a pause", gt=0, le=1e12)
    action: Literal["drop", "forward"] = Field(default="drop", description="what it then does")

    def values(self) -> dict[str, Any]:
        return {"watchdog": {"detect_ns": self.detect, "restore_ns": self.restore, "action": self.action}}

    def makes_worse(self, place: Place, built: Built) -> None:
        if built.watchdog_ns is not None:
            has = [(built.watchdog_ns, name) for name in place.switches()]
            less("detect", self.detect, has, "time", "`detect` of the watchdog")


class PfcOff(Fault):
    name: ClassVar[str] = "pfc_off"
    summary: ClassVar[str] = "one hop neither sends pauses nor heeds them"
    shows: ClassVar[str] = "no pause frames on that hop, and drops `headroom` (or `no_receive_buffer`) behind it"
    example: ClassVar[dict[str, Any]] = {"on": "port:leaf0:1"}
    cable_credits: ClassVar[bool | None] = False
    on: ClassVar[tuple[str, ...]] = ("cable", "port", "nic", "switch", "all")

    direction: Literal["both", "send", "heed"] = Field(default="both", description="what its ports do not do")

    def resources(self, place: Place) -> tuple[str, ...]:
        """Of a NIC it is set at both ends of its cable, as of a cable; the NIC comes first."""
        if place.kind == "nic":
            return tuple(dict.fromkeys([str(place.target), *wire(place)]))
        return super().resources(place)

    def primitives(self, place: Place) -> list[Primitive]:
        off = {"both": ("pfc_tx", "pfc_rx"), "send": ("pfc_tx",), "heed": ("pfc_rx",)}[self.direction]
        values = dict.fromkeys(off, False)
        if place.kind in ("port", "switch"):
            ports = place.directions("both")
        else:
            ports = [f"{end.node}:{end.port}" for cable in place.cables() for end in (cable.a, cable.b)]
        return [overlay("port", port, values) for port in ports]


class SmallHeadroom(Fault):
    name: ClassVar[str] = "small_headroom"
    summary: ClassVar[str] = "a port's headroom is too small for its cable"
    shows: ClassVar[str] = "drops `headroom` in a lossless class, in spite of pauses"
    example: ClassVar[dict[str, Any]] = {"on": "port:leaf0:1", "size": "4KB"}
    cable_credits: ClassVar[bool | None] = False
    on: ClassVar[tuple[str, ...]] = ("port", "switch", "all")

    size: Size = Field(le=10**12, description="headroom of each lossless class: less than without")

    def makes_worse(self, place: Place, built: Built) -> None:
        less("size", self.size, built.headrooms(place.fabric, place.cables()), "size", "the headroom")

    def primitives(self, place: Place) -> list[Primitive]:
        if place.kind == "all":
            names = set(place.switches())
            ends = [end for cable in place.cables() for end in (cable.a, cable.b) if end.node in names]
            ports = [f"{end.node}:{end.port}" for end in ends]
        else:
            ports = place.directions("both")
        return [overlay("port", port, {"headroom_bytes": self.size}) for port in ports]


class PauseStorm(Fault):
    name: ClassVar[str] = "pause_storm"
    summary: ClassVar[str] = "a NIC sends XOFF without end"
    shows: ClassVar[str] = "`rx_prio3_pause` of its switch port grows steadily, pauses spread through the fabric"
    example: ClassVar[dict[str, Any]] = {"on": "nic:0"}
    cable_credits: ClassVar[bool | None] = False
    on: ClassVar[tuple[str, ...]] = ("nic",)
    mended_by: ClassVar[tuple[str, ...]] = ("nic replace",)

    classes: list[TrafficClass] = Field(default=[3], min_length=1, description="classes that it pauses")

    def primitives(self, place: Place) -> list[Primitive]:
        return [overlay("nic", rank, {"storm": self.classes}) for rank in place.nics()]


FAULTS = (
    SmallBuffer, EcnOff, EcnThresholds, WrongDscpMap, WrongWeights, Watchdog, PfcOff, SmallHeadroom, PauseStorm,
)  # fmt: skip
