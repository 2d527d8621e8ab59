"""`transport:` of the experiment file: congestion control, recovery, DSCPs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Literal, Self

from pydantic import (
    Field,
    GetJsonSchemaHandler,
    SerializerFunctionWrapHandler,
    ValidationInfo,
    field_validator,
    model_serializer,
    model_validator,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from testbed.base import controls
from testbed.base.types import Dscp, Model, Time, default, folder_of, mistake
from testbed.experiment.blocks import mixed
from testbed.experiment.blocks.cables import MAX_TIME

if TYPE_CHECKING:
    from hardware.cc import Control
    from hardware.multipath import Policy


class CongestionControl(Model):
    """`NAME`, `{NAME: {PARAMETERS}}` or `{file: FILE.c, PARAMETERS}`; `values` are the parameters given, `set` a named
    set of them. `name` of a file: its path and content."""

    name: str
    set: str | None = None
    values: dict[str, float] = {}

    @model_validator(mode="before")
    @classmethod
    def _from_written(cls, value: Any, info: ValidationInfo) -> Any:
        return controls.read(value, folder_of(info))

    @property
    def control(self) -> Control:
        return controls.control(self.name)

    @property
    def short(self) -> str:
        """What it is called in tables."""
        return controls.short(self.name)

    @model_serializer
    def _as_written(self) -> Any:
        return controls.written(self.name, self.set, self.values)

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return controls.schema()


class Multipath(Model):
    """`{policy: NAME, entropies: N, PARAMETERS}`; `values` are the parameters given. `policy` of a file: its path and
    content."""

    policy: str
    entropies: int
    values: dict[str, float] = {}

    @model_validator(mode="before")
    @classmethod
    def _from_written(cls, value: Any, info: ValidationInfo) -> Any:
        return controls.read_multipath(value, folder_of(info))

    @property
    def entry(self) -> Policy:
        return controls.multipath(self.policy)

    @model_serializer
    def _as_written(self) -> Any:
        return controls.written_multipath(self.policy, self.entropies, self.values)

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return controls.multipath_schema()


class Sack(Model):
    bits: Literal[32, 64, 128, 256, 512] = Field(default=64, description="packets that a bitmap tells of")
    every: int = Field(
        default=16,
        ge=1,
        le=1 << 16,
        description="packets ahead of their turn, or that close a gap, to an acknowledgement, unless one asks for it",
    )


class Loss(Model):
    after: Time | None = Field(
        default=None,
        gt=0,
        le=MAX_TIME,
        description="a packet is lost if one that left so much later has come (null: an idle round trip)",
    )
    probe: bool = Field(
        default=True, description="ask what has come when nothing is heard; not in a lossless class under PFC"
    )


class Sending(Model):
    """What a sender decides, and its receivers answer by."""

    cc: CongestionControl = default(
        "none",
        "congestion control of every queue pair: a name, {NAME: {PARAMETERS}}, or {file: FILE.c, PARAMETERS} for one "
        "of your own (docs/own-controls.md)",
    )
    recovery: Literal["go_back_n", "selective_repeat"] = Field(
        default="go_back_n", description="what is sent again after a loss: everything from there on, or what was lost"
    )
    reorder_packets: int | None = Field(
        default=None,
        ge=1,
        le=1 << 16,
        description="selective repeat: what a NIC keeps out of order at most, in packets (null: four round trips)",
    )
    ordering: Literal["in_order", "any"] = Field(
        default="in_order",
        description="selective repeat: each packet of a write has its address and is placed in any order; a message "
        "with an immediate completes when all of it is there",
    )
    sack: Sack | None = Field(
        default=None,
        description="selective repeat: acknowledgements with bitmaps (null: a NAK for each packet ahead of its turn)",
    )
    loss: Loss | None = Field(
        default=None,
        description="selective repeat: losses by the time of sending, where packets overtake each other (null: what is "
        "overtaken is lost, until one is seen to be late)",
    )
    multipath: Multipath | None = Field(
        default=None,
        description="each packet chooses its path: {policy: NAME, ..}, or {file: FILE.c, ..} for a choice of your own "
        "(docs/own-paths.md) (null: a queue pair keeps one)",
    )
    source_port: Literal["per_qp", "fixed"] = Field(
        default="per_qp",
        description="UDP source port, by which ECMP tells flows apart: each queue pair's own, or the same for all",
    )
    dscp: Dscp = Field(default=26, description="DSCP of data packets")

    def of_others(self) -> Iterator[tuple[str, str, str]]:
        """Keys that another recovery has, and what to do."""
        written = {"ordering: any": self.ordering == "any", "sack": self.sack, "loss": self.loss}
        for what, there in written.items():
            if there and self.recovery != "selective_repeat":
                yield what.split(":")[0], f"{what} is of selective repeat", "set recovery: selective_repeat"


class Own(Sending):
    """Instead of what is said further above: what is written here, and nothing else of it counts."""

    @model_serializer(mode="wrap")
    def _as_written(self, plain: SerializerFunctionWrapHandler) -> Any:
        return {key: value for key, value in plain(self).items() if key in self.model_fields_set}

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        made = handler.resolve_ref_schema(handler(schema))
        for key in made["properties"].values():
            key.pop("default", None)
        return made


def over(above: Sending, *own: Own | None) -> Sending:
    """What holds where each of them, one after the other, says what is other there.

    Go-back-N takes with it what is of selective repeat alone.
    """
    values = {key: getattr(above, key) for key in Sending.model_fields}
    for its in own:
        if its is None:
            continue
        said = {key: getattr(its, key) for key in Sending.model_fields if key in its.model_fields_set}
        if said.get("recovery") == "go_back_n":
            values |= {"ordering": "in_order", "sack": None, "loss": None}
        values |= said
    return Sending.model_construct(**values)


class Transport(Sending):
    nics: dict[str, Own] = Field(
        default_factory=dict,
        description="what single NICs send by instead: `RANK` or `FIRST-LAST`, and any of the keys above "
        "(docs/mixed-controls.md)",
    )
    classes: dict[int, Own] = Field(
        default_factory=dict,
        description="what is sent by in a traffic class, likewise; it goes before `nics`",
    )
    qps: int = Field(
        default=1,
        ge=1,
        le=32,
        description="queue pairs of each connection between ranks, which messages take in turn "
        "(NCCL_IB_QPS_PER_CONNECTION)",
    )
    qps_split: bool = Field(
        default=False,
        description="each message is split evenly over all `qps`, and is there when all of it is "
        "(NCCL_IB_SPLIT_DATA_ON_QPS)",
    )
    ack_dscp: Dscp = Field(default=48, description="DSCP of acknowledgements")
    cnp_dscp: Dscp = Field(default=48, description="DSCP of congestion notifications")

    @field_validator("nics", "classes", mode="before")
    @classmethod
    def _by_name(cls, value: Any, info: ValidationInfo) -> Any:
        return mixed.keyed(value, str(info.field_name))

    @model_validator(mode="after")
    def _of_selective_repeat(self) -> Self:
        for key, what, hint in self.of_others():
            raise mistake(what, hint, [key])
        return self

    def of_nic(self, rank: int) -> Own | None:
        """What is other of a NIC."""
        return next((own for written, own in self.nics.items() if rank in mixed.ranks_of(written)), None)
