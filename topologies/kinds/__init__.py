"""The kinds of topology: every file here is one, and is found by being here.

What a kind is to others, it says itself (graph/kind.py).  How it is drawn stands in drawing/, in a file of its name.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from pkgutil import iter_modules
from typing import Any

from topologies.graph.fabric import Fabric
from topologies.graph.kind import Kind
from topologies.graph.params import unknown
from topologies.graph.validate import validate


def _found() -> Iterator[type[Kind]]:
    for file in iter_modules(__path__):
        module = import_module(f"{__name__}.{file.name}")
        own = (c for c in vars(module).values() if isinstance(c, type) and c.__module__ == module.__name__)
        yield from (c for c in own if issubclass(c, Kind))


KINDS: dict[str, type[Kind]] = {kind.name: kind for kind in _found()}
DIMENSION_ORDER = frozenset(kind.name for kind in KINDS.values() if kind.dimension_order)
"""Kinds on which routes take one dimension after the other."""


def build(kind: str, params: Mapping[str, Any]) -> Fabric:
    """The validated fabric of this kind.

    `params` are plain values, for example `build("rail", {"servers": 4, "gpus": 2})`; `KINDS[kind].parameters()`
    describes them.  Raises TopologyError whose `key` is the parameter at fault, or the kind if that is unknown.
    """
    if kind not in KINDS:
        raise unknown(str(kind), "is no topology", str(kind), list(KINDS))
    return validate(KINDS[kind].parse(params).build())


def dimensions(fabric: Fabric) -> tuple[int, ...]:
    """The dimensions of the grid whose places a fabric's ranks are; (): they have no coordinates."""
    return KINDS.get(fabric.kind, Kind).grid(fabric.params)


def axes(fabric: Fabric) -> tuple[tuple[str, int], ...]:
    """Names and lengths of the grid's dimensions, as ranks count its places; ("ranks", n): they have no coordinates."""
    return KINDS.get(fabric.kind, Kind).axes(fabric.params) or (("ranks", fabric.ranks),)


def in_words(kind: str, params: Mapping[str, Any]) -> dict[str, Any]:
    """Parameters for a line of text: false ones are left out; of a custom network the numbers of its parts."""
    return KINDS.get(kind, Kind).in_words(params)
