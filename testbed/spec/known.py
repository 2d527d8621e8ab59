"""The names an experiment may use, asked of the layers that own them (and imported only then)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from topologies.fabric import Fabric


def topologies() -> list[str]:
    from topologies import KINDS

    return list(KINDS)


def build(kind: str, params: Mapping[str, Any]) -> Fabric:
    """Raises TopologyError."""
    from topologies import build

    return build(kind, params)


def routings() -> list[str]:
    return ["ecmp", "dimension_order"]


def collectives() -> list[str]:
    return ["all_reduce", "reduce_scatter", "all_gather", "ping_pong"]


def algorithms(collective: str) -> list[str]:
    return ["ring"] if collective != "ping_pong" else ["ping_pong"]


def ops(collective: str, algorithm: str) -> list[str]:
    return ["sum", "min", "max", "prod", "avg"]


def dtypes(collective: str, algorithm: str) -> dict[str, int]:
    """Name -> bytes of an element."""
    return {"float32": 4, "float16": 2, "int32": 4, "float64": 8, "int64": 8}
