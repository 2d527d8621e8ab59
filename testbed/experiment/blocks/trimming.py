"""`fabric.switch.trimming`: what is left of frames that find no place in a lossy queue."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Protocol

from pydantic import Field

from testbed.base.types import Dscp, Model, Size, default

if TYPE_CHECKING:
    from testbed.experiment.blocks.transport import Transport


LAST_HOP_DSCP = 37


class Trimming(Model):
    """Fits to the other blocks as `mistakes` says."""

    classes: list[Annotated[int, Field(ge=0, le=7)]] = Field(
        default=[3], min_length=1, description="lossy classes whose frames are trimmed instead of dropped"
    )
    size: Size = default("128B", "bytes of a frame that are left, from its Ethernet header on", ge=64, le=1024)
    dscp: Dscp = Field(default=36, description="DSCP that a trimmed frame gets")
    last_hop_dscp: Dscp | None = Field(
        default=None,
        description="DSCP that it gets before its receiver's NIC (null: `dscp`; with `transport.cc: uec` 37)",
    )
    queue: int = Field(
        default=6, ge=0, le=7, description="class of the queue that it goes by, and at switches behind: its DSCP's"
    )

    def last_hop(self, transport: Transport) -> int | None:
        """As written; or where a window stands beside receivers' credit, which knows of the last cable."""
        if self.last_hop_dscp is not None:
            return self.last_hop_dscp
        return LAST_HOP_DSCP if {"marks", "credit"} <= set(transport.cc.control.hears) else None


class OfSwitch(Protocol):
    """What trimming has to fit."""

    @property
    def trimming(self) -> Trimming | None: ...
    @property
    def lossless(self) -> Sequence[int]: ...
    @property
    def pfc(self) -> bool: ...
    @property
    def dscp(self) -> Mapping[int, int]: ...


def mistakes(switch: OfSwitch, transport: Transport) -> Iterator[tuple[str, str, str]]:
    """Key of `trimming`, what is wrong, what to do."""
    trimming = switch.trimming
    if trimming is None:
        return
    lossless = set(switch.lossless) if switch.pfc else set()
    if found := sorted(lossless & set(trimming.classes)):
        what = f"class {found[0]} is lossless: nothing of it is dropped, so nothing is trimmed"
        yield "classes", what, "take it out of fabric.switch.lossless, or pfc: false"
    if trimming.queue in trimming.classes:
        yield "queue", f"class {trimming.queue} is trimmed itself", "a class that is not among `classes`"
    elif trimming.queue in lossless:
        yield "queue", f"class {trimming.queue} is lossless: its headroom is not for them", "a lossy class, such as 6"
    others = {transport.dscp: "data", transport.ack_dscp: "acknowledgements", transport.cnp_dscp: "notifications"}
    for key, dscp in (("dscp", trimming.dscp), ("last_hop_dscp", trimming.last_hop(transport))):
        written = trimming.queue if dscp is None else switch.dscp.get(dscp, trimming.queue)
        if written != trimming.queue:
            what = f"fabric.switch.dscp puts DSCP {dscp} into class {written}"
            yield key, what, f"queue: {written}, or another DSCP: trimmed frames keep their queue by it"
        if dscp in others:
            what = f"DSCP {dscp} is that of {others[dscp]}: a receiver tells trimmed packets by it"
            yield key, what, "a DSCP that nothing else has"
