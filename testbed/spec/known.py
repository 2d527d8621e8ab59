"""The names an experiment may use, asked of the layers that own them (and imported only then)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from topologies.fabric import Fabric

if TYPE_CHECKING:
    from workloads.registry import Collective


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


def width(dtype: str) -> int:
    """Bytes of an element."""
    from workloads.registry import DTYPES

    return DTYPES[dtype]
