"""Faults of what the network does for collectives: accelerators, and the group tables that copy their results."""

from __future__ import annotations

from typing import Any, ClassVar

from pydantic import Field

from testbed.faults.base import Fault, Place, Primitive, ShowsAs, overlay
from testbed.faults.built import CannotInject
from testbed.faults.forwarding import FlowFault


def _with_accelerator(place: Place) -> list[str]:
    names = place.switches()
    if not all(place.fabric.switch_by_name[name].accelerator for name in names):
        raise CannotInject(f"{place.target} has no accelerator", "fabric.switch.accelerator: {} gives every switch one")
    return names


class AcceleratorDown(Fault):
    name: ClassVar[str] = "accelerator_down"
    summary: ClassVar[str] = "a switch's accelerator answers nothing"
    shows: ClassVar[str] = "drops `fault` at SWITCH.acc, contributions sent again, then ranks do it by themselves"
    example: ClassVar[dict[str, Any]] = {"on": "all"}
    on: ClassVar[tuple[str, ...]] = ("switch", "all")
    shows_as: ClassVar[ShowsAs | None] = "silent"

    def primitives(self, place: Place) -> list[Primitive]:
        return [overlay("switch", name, {"accelerator_down": True}) for name in _with_accelerator(place)]


class MissingGroup(FlowFault):
    name: ClassVar[str] = "missing_group"
    summary: ClassVar[str] = "a switch has lost the groups, and their flows, that copy results and multicasts"
    shows: ClassVar[str] = "drops `forwarding` at that switch of frames to 239.x.y.z; ranks do it by themselves"
    example: ClassVar[dict[str, Any]] = {"on": "switch:leaf0"}
    forwarding: ClassVar[str] = "missing_group"


class SlotsLeaked(Fault):
    name: ClassVar[str] = "slots_leaked"
    summary: ClassVar[str] = "slots of an accelerator are held for jobs that are no more"
    shows: ClassVar[str] = (
        "fewer `slots_free` than the jobs that are there explain, new jobs refused. What leaks beyond the free ones "
        "the newest job loses: `unknown` grows, drops `no_qp` at SWITCH.acc, its ranks do it by themselves"
    )
    example: ClassVar[dict[str, Any]] = {"on": "switch:leaf0", "slots": 512}
    on: ClassVar[tuple[str, ...]] = ("switch", "all")
    mended_by: ClassVar[tuple[str, ...]] = ("accelerator reclaim",)

    slots: int = Field(ge=1, le=65535, description="how many; the free ones go first")

    def primitives(self, place: Place) -> list[Primitive]:
        return [overlay("switch", name, {"slots_leaked": self.slots}) for name in _with_accelerator(place)]


FAULTS = (AcceleratorDown, MissingGroup, SlotsLeaked)
