"""Faults of cables and wiring."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

from pydantic import Field

from testbed.base.types import Rate, Time
from testbed.faults.base import Fault, OfWire, Place, Primitive, overlay, wire
from testbed.faults.built import Built, CannotInject, less, more
from topologies.graph.fabric import Cable
from topologies.graph.targets import CableTarget, NicTarget

CABLES = ("cable", "port", "nic", "switch", "all")


class CableFault(OfWire):
    on: ClassVar[tuple[str, ...]] = CABLES

    def primitives(self, place: Place) -> list[Primitive]:
        return [overlay("cable", cable.name, self.values()) for cable in place.cables()]


class CableDown(CableFault):
    name: ClassVar[str] = "cable_down"
    summary: ClassVar[str] = "the link is down at both ends (with `for` and `every` it flaps)"
    shows: ClassVar[str] = "drops `cable`, an event `port`, and after control.reaction other ports carry the traffic"
    example: ClassVar[dict[str, Any]] = {"on": "cable:leaf0-spine0"}

    def values(self) -> dict[str, Any]:
        return {"up": False}


class ReducedRate(CableFault):
    name: ClassVar[str] = "reduced_rate"
    summary: ClassVar[str] = "the link has come up at a lower rate"
    shows: ClassVar[str] = "a queue in front of it, pauses behind that; no drop in a lossless class"
    example: ClassVar[dict[str, Any]] = {"on": "cable:h0-leaf0", "rate": "100Gbps"}
    sets: ClassVar[Mapping[str, str]] = {"rate_bps": "rate"}

    rate: Rate = Field(gt=0, le=10**14, description="what it still carries: less than without")

    def makes_worse(self, place: Place, built: Built) -> None:
        less("rate", self.rate, built.rates(place.fabric, place.cables()), "rate", "the rate")


class LongCable(CableFault):
    name: ClassVar[str] = "long_cable"
    summary: ClassVar[str] = "the cable is much longer than it should be"
    shows: ClassVar[str] = "every round trip is longer; with PFC the headroom may no longer do (drops `headroom`)"
    example: ClassVar[dict[str, Any]] = {"on": "all", "delay": "5us"}
    sets: ClassVar[Mapping[str, str]] = {"delay_ns": "delay"}

    delay: Time = Field(ge=0, le=1e12, description="its propagation delay: more than without")

    def makes_worse(self, place: Place, built: Built) -> None:
        more("delay", self.delay, built.delays(place.fabric, place.cables()), "time", "the delay")


class SmallMtu(CableFault):
    name: ClassVar[str] = "small_mtu"
    summary: ClassVar[str] = "one hop takes no long frames"
    shows: ClassVar[str] = "drops `mtu` there: small messages pass, large ones never, `local_ack_timeout_err`"
    example: ClassVar[dict[str, Any]] = {"on": "cable:h0-leaf0", "mtu": 1500}
    sets: ClassVar[Mapping[str, str]] = {"mtu": "mtu"}

    mended_by: ClassVar[tuple[str, ...]] = ()  # it is configured so

    mtu: int = Field(ge=64, le=65535, description="longest IP packet that passes, in bytes: some are longer")

    def makes_worse(self, place: Place, built: Built) -> None:
        less("mtu", self.mtu, [(built.longest, "this fabric")], "bytes", "the longest IP packet")


class Miswired(Fault):
    name: ClassVar[str] = "miswired"
    summary: ClassVar[str] = "two NICs' (or two cables') plugs are swapped"
    shows: ClassVar[str] = "drops `no_qp` at both NICs: frames come to one that they are not for"
    example: ClassVar[dict[str, Any]] = {"on": "nic:0", "other": 1}
    on: ClassVar[tuple[str, ...]] = ("nic", "cable")

    other: int | str = Field(description="the other NIC's rank, or the other cable's name")

    def resources(self, place: Place) -> tuple[str, ...]:
        return (*wire(place), *wire(self._second(place)))

    def primitives(self, place: Place) -> list[Primitive]:
        one, other = _only(place), _only(self._second(place))
        if other is one:
            raise CannotInject("a cable cannot be swapped with itself", key="other")
        return [{"primitive": "swap", "cables": [one.name, other.name]}]

    def _second(self, place: Place) -> Place:
        fabric = place.fabric
        if isinstance(place.target, NicTarget) and isinstance(self.other, int) and self.other < len(fabric.nics):
            return replace(place, target=NicTarget(fabric.nics[max(self.other, 0)]))
        if isinstance(place.target, CableTarget) and str(self.other) in fabric.cable_by_name:
            return replace(place, target=CableTarget(fabric.cable_by_name[str(self.other)]))
        hint = "a rank for a NIC, a cable's name for a cable"
        raise CannotInject(f"there is no {self.other!r} to swap with", hint, "other")


def _only(place: Place) -> Cable:
    cables = place.cables()
    if len(cables) > 1:
        names = ", ".join(f"cable:{cable.name}" for cable in cables)
        raise CannotInject(f"{place.target} has {len(cables)} cables", f"name one: {names}")
    return cables[0]


FAULTS = (CableDown, ReducedRate, LongCable, SmallMtu, Miswired)
