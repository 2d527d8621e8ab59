"""Which ranks take part in a collective, and in which order, so that it suits the algorithm and the fabric.

A rank is written as its number, the compute complex of its SmartNIC as `nic:RANK.complex`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import PlainSerializer, ValidatorFunctionWrapHandler, WithJsonSchema, WrapValidator

from testbed.base.types import mistake
from topologies import Fabric
from topologies.graph import endpoint
from topologies.ranks.grid import NoGrid, grid, in_one_domain, servers_and_gpus
from topologies.ranks.hops import chooses_ports
from topologies.ranks.ring_order import ring_order
from workloads.base.entry import Algorithm


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


def group(entry: Algorithm, ranks: Sequence[int] | None, fabric: Fabric) -> dict[str, Any]:
    """`ranks` (None: all, by number), and the `dims` of their grid where the algorithm needs one.  Raises NoGrid."""
    told = _group(entry, ranks, fabric)
    count, dims = fabric.ranks if ranks is None else len(ranks), told.get("dims", [])
    if not entry.fits(count, dims):
        size = " x ".join(map(str, dims)) if dims else f"{count} ranks"
        what = "dimensions that are" if dims else "a number of ranks that is"
        words = entry.lengths if dims else entry.lengths.replace("powers", "a power")
        raise NoGrid(f"{entry} needs {what} {words}, not {size}", "other ranks, or another algorithm")
    return told


def _group(entry: Algorithm, ranks: Sequence[int] | None, fabric: Fabric) -> dict[str, Any]:
    everybody = list(ranks) if ranks is not None else list(range(fabric.ranks))
    if entry.layout == "grid":
        return {"ranks": sorted(everybody), "dims": list(grid(fabric, everybody))}
    if entry.layout == "rails":
        dims = servers_and_gpus(fabric, everybody)
        return {"ranks": sorted(everybody), "dims": list(dims)}
    if entry.layout == "domain":
        in_one_domain(fabric, everybody)
    if entry.layout == "ports" and not chooses_ports(fabric):
        raise NoGrid("no NIC has several ports", "a star or clos with `links`, or a custom network, may have such")
    if entry.layout in ("ring", "ports") and ranks is None:
        return {"ranks": ring_order(fabric)}
    return {"ranks": None if ranks is None else list(ranks)}
