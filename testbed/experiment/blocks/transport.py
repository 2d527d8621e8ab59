"""`transport:` of the experiment file: congestion control, recovery, DSCPs."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, GetJsonSchemaHandler, model_serializer, model_validator
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from testbed.base import controls
from testbed.base.types import Dscp, Model, default


class CongestionControl(Model):
    """`NAME` or `{NAME: {PARAMETERS}}`; `values` are the parameters given, `set` a named set of them."""

    name: str
    set: str | None = None
    values: dict[str, float] = {}

    @model_validator(mode="before")
    @classmethod
    def _from_written(cls, value: Any) -> Any:
        return controls.read(value)

    @model_serializer
    def _as_written(self) -> Any:
        return controls.written(self.name, self.set, self.values)

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return controls.schema()


class Transport(Model):
    cc: CongestionControl = default("none", "congestion control of every queue pair: a name, or {NAME: {PARAMETERS}}")
    recovery: Literal["go_back_n", "selective_repeat"] = Field(
        default="go_back_n", description="what is sent again after a loss: everything from there on, or what was lost"
    )
    reorder_packets: int | None = Field(
        default=None,
        ge=1,
        le=1 << 16,
        description="selective repeat: what a NIC keeps out of order at most, in packets (null: four round trips)",
    )
    dscp: Dscp = Field(default=26, description="DSCP of data packets")
    ack_dscp: Dscp = Field(default=48, description="DSCP of acknowledgements")
    cnp_dscp: Dscp = Field(default=48, description="DSCP of congestion notifications")
