"""Faults of packet trimming: a switch that drops as without it, and trimmed frames that are no longer known as such."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from pydantic import Field

from testbed.faults.base import FrameFault, Place, Primitive
from testbed.faults.queue import SwitchFault


class TrimOff(SwitchFault):
    name: ClassVar[str] = "trim_off"
    summary: ClassVar[str] = "a switch drops what finds no place, where others trim"
    shows: ClassVar[str] = (
        "drops `lossy` and no `trim_packets` there, and timeouts or probes of those who send through it"
    )
    example: ClassVar[dict[str, Any]] = {"on": "switch:leaf0"}
    trims: ClassVar[bool] = True

    def values(self) -> dict[str, Any]:
        return {"trimming": None}


class TrimDscpLost(FrameFault):
    name: ClassVar[str] = "trim_dscp_lost"
    summary: ClassVar[str] = "trimmed frames get another DSCP on the way: they lose their queue, and nobody knows them"
    shows: ClassVar[str] = (
        "short frames in another class behind it, `rx_icrc_encapsulated` at their receivers; `trim_packets` without as "
        "many `rx_trimmed`"
    )
    example: ClassVar[dict[str, Any]] = {"on": "cable:leaf0-spine0"}
    effect: ClassVar[str] = "set_dscp"
    sets: ClassVar[Mapping[str, str]] = {"dscp": "dscp"}
    trims: ClassVar[bool] = True

    dscp: int = Field(default=0, ge=0, le=63, description="the DSCP that they get")
    of_dscp: int | None = Field(
        default=None, ge=0, le=63, description="only frames with this DSCP (null: that of trimmed frames)"
    )

    def primitives(self, place: Place) -> list[Primitive]:
        trimmed = place.built.trimmed_dscp if place.built else None
        of_dscp = 36 if trimmed is None else trimmed
        known = self if self.of_dscp is not None else self.model_copy(update={"of_dscp": of_dscp})
        return super(TrimDscpLost, known).primitives(place)


FAULTS = (TrimOff, TrimDscpLost)
