"""How a cable's ends keep each other from losing frames: pauses or credits, and retries.

As with rates and delays, the last of these that says something applies: `fabric.cable`, `fabric.host_cable`, and the
entries of `fabric.cables` in their order.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Discriminator, Field, Tag, WithJsonSchema

from testbed.base.types import Model, Size, Time, default, mistake
from topologies.graph.fabric import Fabric

MOST_BYTES = 10**11


class Credits(Model):
    room: Size | None = Field(
        default=None,
        ge=64,
        le=MOST_BYTES,
        description="room of the receiver for each lossless class, at either end (null: as much as a full rate needs, "
        "by the cable's rate and delay)",
    )
    resync: Time | None = default(
        "100us",
        "a sender says so often how much it has sent, by which the receiver finds credits that were lost (null: never)",
        gt=0,
        le=1e12,
    )


class OfCredits(Model):
    credits: Credits = Field(description="a frame is sent when the other end has room for it")


class Retry(Model):
    buffer: Size | None = Field(
        default=None,
        gt=0,
        le=MOST_BYTES,
        description="replay buffer of a cable's end: what it may have sent without an acknowledgement (null: as much "
        "as a full rate needs, by the cable's rate and delay)",
    )


def _written(value: Any) -> Any:
    if isinstance(value, dict) and list(value) == ["credits"] and value["credits"] is None:
        return {"credits": {}}
    if value not in ("pfc", "credits") and not isinstance(value, dict | OfCredits):
        shown = "null" if value is None else f"{value!r:.40}"
        raise mistake(f"{shown} is no flow control", "write pfc, credits or {credits: {room: 128KB}}")
    return {"credits": {}} if value == "credits" else value


def _kind(value: Any) -> str:
    return "<none>" if value is None else "<credits>" if isinstance(value, dict | OfCredits) else "<pfc>"


_Pfc = Annotated[Literal["pfc"], WithJsonSchema({"enum": ["pfc", "credits"]}), Tag("<pfc>")]
_Credits = Annotated[OfCredits, Tag("<credits>")]
FlowControl = Annotated[_Pfc | _Credits, Discriminator(_kind), BeforeValidator(_written)]
OwnFlowControl = Annotated[
    _Pfc | _Credits | Annotated[None, Tag("<none>")],
    Discriminator(_kind),
    BeforeValidator(lambda value: None if value is None else _written(value)),
]

FLOW_CONTROL = (
    "what keeps a sender from more than its receiver has room for, in lossless classes: `pfc`, `credits` or "
    "`{credits: {room: .., resync: ..}}`"
)
RETRY = "the cable's near end sends damaged frames once more, in order: `{}` or `{buffer: 64KB}`"

OwnRetry = Retry | Literal["none"] | None


class OfCables(Model):
    """Of all cables."""

    flow_control: FlowControl = Field(default="pfc", description=FLOW_CONTROL)
    retry: Retry | None = Field(default=None, description=f"{RETRY} (null: it does not)")


class OfSomeCables(Model):
    """Of some cables, where they are different."""

    flow_control: OwnFlowControl = Field(default=None, description="`pfc` or `credits` (null: as without)")
    retry: OwnRetry = Field(default=None, description="as `fabric.cable.retry`; `none`: no retries (null: as without)")


def kept(
    fabric: Fabric, every: OfCables, of_hosts: OfSomeCables, overrides: Sequence[tuple[set[str], OfSomeCables]]
) -> Iterator[tuple[str, Credits | None, Retry | None]]:
    """Of each cable that has any: its name, credits and retries.  `overrides` are by the cables that they are for."""
    for cable in fabric.cables:
        if cable.name in fabric.inside:
            continue
        flow, retry = every.flow_control, every.retry
        told = [of_hosts] if cable.name in fabric.to_hosts else []
        for one in [*told, *(own for names, own in overrides if cable.name in names)]:
            flow = one.flow_control or flow
            retry = None if one.retry == "none" else one.retry or retry
        credits = flow.credits if isinstance(flow, OfCredits) else None
        if credits or retry:
            yield cable.name, credits, retry
