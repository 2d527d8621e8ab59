"""`clock:` of the experiment file."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import GetJsonSchemaHandler, model_serializer, model_validator
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from testbed.base.types import Model, mistake

MOST_PARTITIONS = 64
"""As fabricd has it (engine/division.h)."""


class Clock(Model):
    """`virtual`, `{virtual: {partitions: N}}`, `real` or `{real: {dilation: N, fifo: BOOL}}`.

    `dilation`, `partitions` None: chosen when the fabric comes up.
    `fifo`: fabricd asks for real-time scheduling (SCHED_FIFO), and goes on without where it is not allowed.
    `partitions`: into so many, at most, fabricd divides the fabric; no figure depends on it.
    """

    mode: Literal["virtual", "real"]
    partitions: int | None = None
    dilation: int | None = None
    fifo: bool = False

    @model_validator(mode="before")
    @classmethod
    def _from_written(cls, value: Any) -> Any:
        if value in ("virtual", "real"):
            return {"mode": value}
        if not isinstance(value, dict) or list(value) not in (["real"], ["virtual"]):
            raise mistake(f"{value!r:.40} is not a clock", "write virtual, real or {real: {dilation: 10000}}")
        if "virtual" in value:
            return {"mode": "virtual", "partitions": cls._partitions(value["virtual"])}
        inner = {} if value["real"] is None else value["real"]
        if not isinstance(inner, dict):
            raise mistake("the real clock takes a mapping", "write {real: {dilation: 10000}}", path=["real"])
        for key in inner:
            if key not in ("dilation", "fifo"):
                raise mistake(f"unknown key {key!r}", "allowed keys: dilation, fifo", path=["real", key])
        dilation, fifo = inner.get("dilation", "auto"), inner.get("fifo", False)
        if type(fifo) is not bool:
            raise mistake(f"{fifo!r:.40} is neither true nor false", "write true or false", ["real", "fifo"])
        if dilation == "auto":
            return {"mode": "real", "fifo": fifo}
        if type(dilation) is not int or not 1 <= dilation <= 10**9:
            raise mistake(
                f"{dilation!r:.40} is not a dilation",
                "write auto or a whole number from 1 to 10^9",
                ["real", "dilation"],
            )
        return {"mode": "real", "dilation": dilation, "fifo": fifo}

    @staticmethod
    def _partitions(inner: Any) -> int | None:
        if not isinstance(inner, dict | None):
            raise mistake("the virtual clock takes a mapping", "write {virtual: {partitions: 8}}", ["virtual"])
        for key in inner or ():
            if key != "partitions":
                raise mistake(f"unknown key {key!r}", "allowed keys: partitions", ["virtual", key])
        count = (inner or {}).get("partitions", "auto")
        if count == "auto":
            return None
        if type(count) is not int or not 1 <= count <= MOST_PARTITIONS:
            raise mistake(
                f"{count!r:.40} is no number of partitions",
                f"write auto or a whole number from 1 to {MOST_PARTITIONS}",
                ["virtual", "partitions"],
            )
        return count

    @model_serializer
    def _as_written(self) -> Any:
        if self.mode == "virtual":
            return "virtual" if self.partitions is None else {"virtual": {"partitions": self.partitions}}
        return {"real": {"dilation": "auto" if self.dilation is None else self.dilation, "fifo": self.fifo}}

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        dilation = {"anyOf": [{"const": "auto"}, {"type": "integer", "minimum": 1, "maximum": 10**9}]}
        partitions = {"anyOf": [{"const": "auto"}, {"type": "integer", "minimum": 1, "maximum": MOST_PARTITIONS}]}
        keys: dict[str, dict[str, Any]] = {
            "virtual": {"partitions": partitions},
            "real": {"dilation": dilation, "fifo": {"type": "boolean"}},
        }
        return {"anyOf": [{"enum": ["virtual", "real"]}, *(_written(mode, its) for mode, its in keys.items())]}


def _written(mode: str, keys: dict[str, Any]) -> dict[str, Any]:
    inner = {"type": "object", "properties": keys, "additionalProperties": False}
    return {"type": "object", "properties": {mode: inner}, "required": [mode], "additionalProperties": False}
