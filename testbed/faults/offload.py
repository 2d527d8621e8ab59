"""Faults of what the network does for collectives: accelerators, and the group tables that copy their results."""

from __future__ import annotations

from typing import Any, ClassVar

from testbed.faults.base import CannotInject, Fault, Place, Primitive, ShowsAs, overlay
from testbed.faults.forwarding import FlowFault


class AcceleratorDown(Fault):
    name: ClassVar[str] = "accelerator_down"
    summary: ClassVar[str] = "a switch's accelerator answers nothing"
    shows: ClassVar[str] = "drops `fault` at SWITCH.acc, contributions sent again, then ranks do it by themselves"
    example: ClassVar[dict[str, Any]] = {"on": "all"}
    on: ClassVar[tuple[str, ...]] = ("switch", "all")
    shows_as: ClassVar[ShowsAs | None] = "silent"

    def primitives(self, place: Place) -> list[Primitive]:
        names = place.switches()
        if not all(place.fabric.switch_by_name[name].accelerator for name in names):
            raise CannotInject(
                f"{place.target} has no accelerator", "fabric.switch.accelerator: {} gives every switch one"
            )
        return [overlay("switch", name, {"accelerator_down": True}) for name in names]


class MissingGroup(FlowFault):
    name: ClassVar[str] = "missing_group"
    summary: ClassVar[str] = "a switch has lost the groups, and their flows, that copy results and multicasts"
    shows: ClassVar[str] = "drops `forwarding` at that switch of frames to 239.x.y.z; ranks do it by themselves"
    example: ClassVar[dict[str, Any]] = {"on": "switch:leaf0"}
    forwarding: ClassVar[str] = "missing_group"


FAULTS = (AcceleratorDown, MissingGroup)
