"""Faults of frames: lost, damaged, doubled, late."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from pydantic import Field

from testbed.base.types import Time, default
from testbed.faults.base import FrameFault, ShowsAs


class ShareOfFrames(FrameFault):
    rate: float = Field(
        gt=0, le=1, allow_inf_nan=False, description="share of the frames, drawn at random from the seed"
    )

    def select(self) -> dict[str, Any]:
        return {"share": self.rate}


class Loss(ShareOfFrames):
    name: ClassVar[str] = "loss"
    summary: ClassVar[str] = "frames are lost at random"
    shows: ClassVar[str] = "drops `fault` at the far port, `packet_seq_err`, `out_of_sequence`, retransmissions"
    example: ClassVar[dict[str, Any]] = {"on": "cable:h0-leaf0", "rate": 0.01}
    effect: ClassVar[str] = "drop"
    shows_as: ClassVar[ShowsAs | None] = "crc"


class BurstLoss(FrameFault):
    name: ClassVar[str] = "burst_loss"
    summary: ClassVar[str] = "frames are lost in bursts (Gilbert-Elliott: a good and a bad state)"
    shows: ClassVar[str] = "as loss, several in a row: `local_ack_timeout_err` when acknowledgements go with them"
    example: ClassVar[dict[str, Any]] = {"on": "cable:h0-leaf0", "to_bad": 0.01, "to_good": 0.3}
    effect: ClassVar[str] = "drop"
    shows_as: ClassVar[ShowsAs | None] = "crc"

    to_bad: float = Field(ge=0, le=1, allow_inf_nan=False, description="chance, for each frame, that bad begins")
    to_good: float = Field(gt=0, le=1, allow_inf_nan=False, description="chance that it ends")
    loss_bad: float = Field(default=1.0, ge=0, le=1, allow_inf_nan=False, description="loss while it is bad")
    loss_good: float = Field(default=0.0, ge=0, le=1, allow_inf_nan=False, description="loss while it is good")

    def select(self) -> dict[str, Any]:
        keys = ("to_bad", "to_good", "loss_bad", "loss_good")
        return {"burst": {key: getattr(self, key) for key in keys}}


class DropEvery(FrameFault):
    name: ClassVar[str] = "drop_every"
    summary: ClassVar[str] = "every n-th frame of a port is lost"
    shows: ClassVar[str] = "as loss, evenly"
    example: ClassVar[dict[str, Any]] = {"on": "cable:h0-leaf0", "n": 20}
    effect: ClassVar[str] = "drop"
    shows_as: ClassVar[ShowsAs | None] = "crc"

    n: int = Field(ge=1, le=10**12, description="every n-th")

    def select(self) -> dict[str, Any]:
        return {"every": self.n}


class DropFirst(FrameFault):
    name: ClassVar[str] = "drop_first"
    summary: ClassVar[str] = "the first n frames of a port are lost"
    shows: ClassVar[str] = "exactly n drops `fault` of each port (a cable has two, without `direction`), then none"
    example: ClassVar[dict[str, Any]] = {"on": "cable:h0-leaf0", "n": 3}
    effect: ClassVar[str] = "drop"
    shows_as: ClassVar[ShowsAs | None] = "crc"

    n: int = Field(ge=1, le=10**12, description="how many")

    def select(self) -> dict[str, Any]:
        return {"first": self.n}


class DropHash(FrameFault):
    name: ClassVar[str] = "drop_hash"
    summary: ClassVar[str] = (
        "all frames of some flows are lost, by a hash of their headers (a bad ASIC lane or ECMP member)"
    )
    shows: ClassVar[str] = "a few queue pairs end with `transport retries exceeded`, all others see nothing"
    example: ClassVar[dict[str, Any]] = {"on": "all", "share": 0.3}
    effect: ClassVar[str] = "drop"
    shows_as: ClassVar[ShowsAs | None] = "silent"

    share: float = Field(gt=0, le=1, allow_inf_nan=False, description="share of the flows")
    salt: int = Field(default=0, ge=0, le=10**15, description="another salt strikes other flows")

    def select(self) -> dict[str, Any]:
        return {"hash": {"share": self.share, "salt": self.salt}}


class Corruption(ShareOfFrames):
    name: ClassVar[str] = "corruption"
    summary: ClassVar[str] = "a bit of the frame flips, and the receiver's ICRC check finds it"
    shows: ClassVar[str] = "`rx_icrc_encapsulated` and drops `icrc` at the receiving NIC, retransmissions"
    example: ClassVar[dict[str, Any]] = {"on": "cable:h0-leaf0", "rate": 0.01}
    effect: ClassVar[str] = "corrupt"


class SilentCorruption(ShareOfFrames):
    name: ClassVar[str] = "silent_corruption"
    summary: ClassVar[str] = "a bit of the data flips past the ICRC (bad memory in a switch or NIC)"
    shows: ClassVar[str] = "no counter at all: elements are wrong in the result"
    example: ClassVar[dict[str, Any]] = {"on": "cable:h0-leaf0", "rate": 0.2}
    effect: ClassVar[str] = "corrupt_silent"


class Duplication(ShareOfFrames):
    name: ClassVar[str] = "duplication"
    summary: ClassVar[str] = "frames come twice"
    shows: ClassVar[str] = "`duplicate_request`; more frames in than the other end has sent"
    example: ClassVar[dict[str, Any]] = {"on": "cable:h0-leaf0", "rate": 0.1}
    effect: ClassVar[str] = "duplicate"


class Reordering(ShareOfFrames):
    name: ClassVar[str] = "reordering"
    summary: ClassVar[str] = "some frames are overtaken by those behind them"
    shows: ClassVar[str] = "`out_of_sequence` and `packet_seq_err` without a single drop"
    example: ClassVar[dict[str, Any]] = {"on": "cable:h0-leaf0", "rate": 0.05}
    effect: ClassVar[str] = "delay"
    reorder: ClassVar[bool] = True
    sets: ClassVar[Mapping[str, str]] = {"delay_ns": "delay", "reorder": "reorder"}

    delay: Time = default("1us", "how much later such a frame comes in", gt=0, le=1e12)


class Delay(FrameFault):
    name: ClassVar[str] = "delay"
    summary: ClassVar[str] = "frames come in later"
    shows: ClassVar[str] = "operations take longer by the delay; no counter moves"
    example: ClassVar[dict[str, Any]] = {"on": "all", "delay": "10us"}
    effect: ClassVar[str] = "delay"
    sets: ClassVar[Mapping[str, str]] = {"delay_ns": "delay"}

    delay: Time = Field(gt=0, le=1e12, description="how much later")


class Jitter(FrameFault):
    name: ClassVar[str] = "jitter"
    summary: ClassVar[str] = "frames come in later, each by another time, but in order"
    shows: ClassVar[str] = "times of equal operations differ"
    example: ClassVar[dict[str, Any]] = {"on": "cable:h0-leaf0", "jitter": "2us"}
    effect: ClassVar[str] = "delay"
    sets: ClassVar[Mapping[str, str]] = {"jitter_ns": "jitter"}

    jitter: Time = Field(gt=0, le=1e12, description="from nothing to so much later, evenly")


class OneWay(FrameFault):
    name: ClassVar[str] = "one_way"
    summary: ClassVar[str] = "a cable carries one direction only, and its link stays up"
    shows: ClassVar[str] = "one end counts what it sends, the other receives nothing; drops `fault` on one side alone"
    example: ClassVar[dict[str, Any]] = {"on": "cable:h0-leaf0", "direction": "backward"}
    effect: ClassVar[str] = "drop"
    shows_as: ClassVar[ShowsAs | None] = "silent"
    on: ClassVar[tuple[str, ...]] = ("cable", "port", "nic")

    direction: Literal["forward", "backward"] = Field(default="forward", description="the direction that is dead")


class DscpRemarked(FrameFault):
    name: ClassVar[str] = "dscp_remarked"
    summary: ClassVar[str] = "frames get another DSCP on the way, and so another class from the next switch on"
    shows: ClassVar[str] = "traffic in a class that no NIC sends in; no pauses and marks in the class that it left"
    example: ClassVar[dict[str, Any]] = {"on": "cable:h0-leaf0", "dscp": 0}
    effect: ClassVar[str] = "set_dscp"
    sets: ClassVar[Mapping[str, str]] = {"dscp": "dscp"}

    dscp: int = Field(ge=0, le=63, description="the DSCP that they get")


class EcnBleached(FrameFault):
    name: ClassVar[str] = "ecn_bleached"
    summary: ClassVar[str] = "marks are wiped off: CE becomes ECT(0)"
    shows: ClassVar[str] = "`ecn_marked` at the switch, but no `np_ecn_marked_roce_packets` and no CNPs"
    example: ClassVar[dict[str, Any]] = {"on": "all"}
    effect: ClassVar[str] = "clear_ecn"


FAULTS = (
    Loss, BurstLoss, DropEvery, DropFirst, DropHash, Corruption, SilentCorruption, Duplication, Reordering, Delay,
    Jitter, OneWay, DscpRemarked, EcnBleached,
)  # fmt: skip
