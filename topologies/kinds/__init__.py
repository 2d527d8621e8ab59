"""The kinds of topology by name, and `build`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .clos import Clos
from .custom import Custom
from .fabric import Fabric
from .params import Kind, unknown
from .rail import Rail
from .ring import Ring
from .star import Star
from .torus import Torus
from .validate import validate

KINDS: dict[str, type[Kind]] = {kind.name: kind for kind in (Rail, Clos, Torus, Ring, Star, Custom)}


def build(kind: str, params: Mapping[str, Any]) -> Fabric:
    """The validated fabric of this kind.

    `params` are plain values, for example `build("rail", {"servers": 4, "gpus": 2})`; `KINDS[kind].parameters()`
    describes them.  Raises TopologyError whose `key` is the parameter at fault, or the kind if that is unknown.
    """
    if kind not in KINDS:
        raise unknown(str(kind), "is no topology", str(kind), list(KINDS))
    return validate(KINDS[kind].parse(params).build())


def in_words(kind: str, params: Mapping[str, Any]) -> dict[str, Any]:
    """Parameters as a line of text has room for: without what is false, of a custom network how much of what it has."""
    if kind != Custom.name:
        return {key: value for key, value in params.items() if value is not False}
    kinds = [told["kind"] if isinstance(told, Mapping) else told for told in params["nodes"].values()]
    return {"hosts": kinds.count("host"), "switches": kinds.count("switch"), "cables": len(params["cables"])}
