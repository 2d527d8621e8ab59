"""Faults of adaptive switches: what they may choose from, and how they choose."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

from pydantic import Field

from testbed.base.types import Time
from testbed.faults.base import Fault, Place, Primitive, overlay
from testbed.faults.forwarding import DeadMember, FlowFault
from topologies.graph.targets import PortTarget


class AdaptiveOff(FlowFault):
    name: ClassVar[str] = "adaptive_off"
    summary: ClassVar[str] = "a switch hashes each flow onto one of its equal ports, as without adaptive routing"
    shows: ClassVar[str] = "no `picks` at that switch, and some of its equal links full while others stay empty"
    example: ClassVar[dict[str, Any]] = {"on": "switch:leaf0"}
    adaptive: ClassVar[bool | None] = True
    forwarding: ClassVar[str] = "hashed"


class WrongGroupWeights(DeadMember):
    name: ClassVar[str] = "wrong_group_weights"
    summary: ClassVar[str] = "in a switch's groups of equal ports one weighs several times what the others do"
    shows: ClassVar[str] = "`testbed show groups`: another weight; its link is full and marks while others are not"
    example: ClassVar[dict[str, Any]] = {"on": "port:leaf0:3", "weight": 8}
    adaptive: ClassVar[bool | None] = True
    forwarding: ClassVar[str] = "group_weights"
    sets: ClassVar[Mapping[str, str]] = {"weight": "weight"}

    weight: int = Field(ge=2, le=64, description="what it weighs, where each of the others weighs 1")

    def spec(self, place: Place) -> dict[str, Any]:
        return {**super().spec(place), **self.values()}


class StuckChoice(Fault):
    name: ClassVar[str] = "stuck_choice"
    summary: ClassVar[str] = "a switch's chip takes the first port of each set, whatever its queue"
    shows: ClassVar[str] = "`picks` of one port in each set, while the flow tables are right"
    example: ClassVar[dict[str, Any]] = {"on": "switch:leaf0"}
    on: ClassVar[tuple[str, ...]] = ("switch", "all")
    adaptive: ClassVar[bool | None] = True
    mended_by: ClassVar[tuple[str, ...]] = ("adaptive restart",)

    def primitives(self, place: Place) -> list[Primitive]:
        return [overlay("switch", name, {"adaptive": None}) for name in place.switches()]


class StaleQuality(Fault):
    name: ClassVar[str] = "stale_quality"
    summary: ClassVar[str] = "a switch's chip chooses by what it saw of a port's queue long ago, or of all its ports'"
    shows: ClassVar[str] = (
        "`testbed show groups`: one port of each set is taken more often than the others, or less, while weights are "
        "right; its queue, and marks there"
    )
    example: ClassVar[dict[str, Any]] = {"on": "port:leaf0:3"}
    on: ClassVar[tuple[str, ...]] = ("port", "switch", "all")
    adaptive: ClassVar[bool | None] = True
    mended_by: ClassVar[tuple[str, ...]] = ("adaptive restart",)

    age: Annotated[Time, Field(gt=0, le=1e9)] | None = Field(
        default=None, description="how old that becomes before it looks again (null: as old as the fault)"
    )

    def primitives(self, place: Place) -> list[Primitive]:
        age = _NEVER_NS if self.age is None else self.age
        return [overlay("port", port, {"stale_ns": age}) for port in self._ports(place)]

    def _ports(self, place: Place) -> list[str]:
        if isinstance(place.target, PortTarget):
            return place.directions("both")
        switches = (place.fabric.switch_by_name[name] for name in place.switches())
        return [f"{s.name}:{port}" for s in switches for port in range(1, s.ports + 1)]


_NEVER_NS = 1e12
"""Longer than any run."""

FAULTS = (AdaptiveOff, WrongGroupWeights, StuckChoice, StaleQuality)
