"""Faults that strike packets which choose their path, and hardly others."""

from __future__ import annotations

from typing import Any, ClassVar

from pydantic import Field

from testbed.base.types import Size, default
from testbed.faults.base import FrameFault, Place, Primitive, ShowsAs
from testbed.faults.built import Built, CannotInject
from testbed.faults.host import NicFault
from testbed.faults.queue import EcnThresholds

_DATA = ["SEND_FIRST", "SEND_MIDDLE", "SEND_LAST", "SEND_ONLY", "WRITE_FIRST", "WRITE_MIDDLE", "WRITE_LAST",
         "WRITE_LAST_IMM", "WRITE_ONLY", "WRITE_ONLY_IMM"]  # fmt: skip


class BlackholeEntropy(FrameFault):
    name: ClassVar[str] = "blackhole_entropy"
    summary: ClassVar[str] = (
        "data of one UDP source port in so many vanishes (a lane, an entry of a hash table): each queue pair loses "
        "some of its entropies"
    )
    shows: ClassVar[str] = (
        "`testbed show paths`: all that a few entropies of each queue pair sent is `lost`, nothing of the others; "
        "ping, and most of what keeps one path, come through"
    )
    example: ClassVar[dict[str, Any]] = {"on": "switch:leaf0", "of": 64}
    sprays: ClassVar[bool] = True
    effect: ClassVar[str] = "drop"
    shows_as: ClassVar[ShowsAs | None] = "silent"

    of: int = Field(default=64, ge=2, le=16384, description="one entropy in so many")
    salt: int = Field(default=0, ge=0, le=10**15, description="another salt strikes other ones")

    def select(self) -> dict[str, Any]:
        return {"hash": {"share": 1 / self.of, "salt": self.salt}}

    def primitives(self, place: Place) -> list[Primitive]:
        chosen = self if self.opcodes else self.model_copy(update={"opcodes": _DATA})
        return super(BlackholeEntropy, chosen).primitives(place)


class InOrderNic(NicFault):
    name: ClassVar[str] = "in_order_nic"
    summary: ClassVar[str] = "a NIC takes no packet ahead of its turn (firmware of before, or a setting): it drops them"
    shows: ClassVar[str] = (
        "`out_of_sequence` of that NIC without `placed_out_of_order`, and `retransmitted` of all who send to it by "
        "several paths; by one path nothing shows"
    )
    example: ClassVar[dict[str, Any]] = {"on": "nic:0"}

    def values(self) -> dict[str, Any]:
        return {"takes_in_order": True}

    def makes_worse(self, place: Place, built: Built) -> None:
        if not built.selective:
            raise CannotInject("no NIC takes packets ahead of their turn", "transport: {recovery: selective_repeat}")


class RepsLateMarks(EcnThresholds):
    name: ClassVar[str] = "reps_late_marks"
    summary: ClassVar[str] = "a switch marks too late for those who choose paths by marks: full ones look free to them"
    shows: ClassVar[str] = (
        "fewer marks (`ecn_marked`, `marks_returned`) there and longer queues than at others; `reps` uses what it drew "
        "first again and again, and is slower than spraying in turn"
    )
    example: ClassVar[dict[str, Any]] = {"on": "all", "kmin": "400KB", "kmax": "1600KB"}
    sprays: ClassVar[bool] = True

    kmin: Size = default("200KB", "queue up to which nothing is marked: a longer one than without", le=10**12)
    kmax: Size = default("800KB", "queue above which everything is", le=10**12)


FAULTS = (BlackholeEntropy, InOrderNic, RepsLateMarks)
