"""The names an experiment may use, asked of the layers that own them (and imported only then)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from topologies.fabric import Fabric

if TYPE_CHECKING:
    from topologies.params import Kind
    from workloads.registry import Collective


def topologies() -> list[str]:
    from topologies import KINDS

    return list(KINDS)


def build(kind: str, params: Mapping[str, Any]) -> Fabric:
    """Raises TopologyError."""
    from topologies import build

    return build(kind, params)


def topology_schema() -> dict[str, Any]:
    """JSON schema of `{KIND: {PARAMETERS}}`."""
    from topologies import KINDS

    return {
        "type": "object",
        "properties": {name: _kind_schema(kind) for name, kind in KINDS.items()},
        "additionalProperties": False,
        "minProperties": 1,
        "maxProperties": 1,
    }


def _kind_schema(kind: type[Kind]) -> dict[str, Any]:
    properties = {}
    for p in kind.parameters():
        schema: dict[str, Any] = {"type": "integer", "minimum": p.least, "maximum": p.most}
        if p.type == "list of integers":
            schema = {"type": "array", "items": schema, "minItems": 1}
        if not p.required:
            schema["default"] = p.default
        properties[p.name] = {**schema, "description": p.doc}
    required = [p.name for p in kind.parameters() if p.required]
    schema = {"type": "object", "properties": properties, "additionalProperties": False, "required": required}
    return {**schema, "description": kind.summary}


def routings() -> list[str]:
    from controllers.routes import ROUTINGS

    return list(ROUTINGS)


def kinds_of_routing(name: str) -> frozenset[str] | None:
    """The kinds of topology that a known routing works on; None: any."""
    from controllers.routes import ROUTINGS

    return ROUTINGS[name].kinds


def collectives() -> list[str]:
    from workloads.registry import names

    return list(names())


def algorithms(collective: str) -> list[str]:
    """The algorithms of a known collective, its default first."""
    from workloads.registry import algorithms

    return list(algorithms(collective))


def collective(name: str, algorithm: str) -> Collective:
    """What is known of a known collective and algorithm."""
    from workloads.registry import find

    return find(name, algorithm)


def every_algorithm() -> list[str]:
    return list(dict.fromkeys(a for c in collectives() for a in algorithms(c)))


def ops() -> list[str]:
    from workloads.registry import OPS

    return list(OPS)


def dtypes() -> list[str]:
    from workloads.registry import DTYPES

    return list(DTYPES)


def width(dtype: str) -> int:
    """Bytes of an element."""
    from workloads.registry import DTYPES

    return DTYPES[dtype]
