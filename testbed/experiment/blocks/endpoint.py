"""A rank, or the compute complex of a rank's SmartNIC, in an experiment: `3`, or `nic:3.complex`."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import PlainSerializer, ValidatorFunctionWrapHandler, WithJsonSchema, WrapValidator

from testbed.base.types import mistake
from topologies.graph import endpoint


def _read(value: Any, handler: ValidatorFunctionWrapHandler) -> int:
    if isinstance(value, endpoint.OfNic):
        return value
    if not isinstance(value, str):
        number: int = handler(value)
        return number
    if (found := endpoint.parse(value)) is None:
        raise mistake(f"{value!r:.60} is neither a rank nor a compute complex", f"a number, or {endpoint.FORM}")
    return found


Endpoint = Annotated[
    int,
    WrapValidator(_read),
    PlainSerializer(lambda end: str(end) if isinstance(end, endpoint.OfNic) else end, when_used="json"),
    WithJsonSchema(
        {"anyOf": [{"type": "integer"}, {"type": "string", "x-quantity": f"`{endpoint.FORM}`"}]}, mode="validation"
    ),
]
