"""Faults of adaptive switches: what they may choose from, and how they choose."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from pydantic import Field

from testbed.faults.base import Fault, Place, Primitive, overlay
from testbed.faults.forwarding import DeadMember, FlowFault


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

    def primitives(self, place: Place) -> list[Primitive]:
        return [overlay("switch", name, {"adaptive": None}) for name in place.switches()]


FAULTS = (AdaptiveOff, WrongGroupWeights, StuckChoice)
