"""Which ranks take part in a collective, and in which order, so that it suits the algorithm and the fabric."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from topologies import Fabric
from topologies.ranks.grid import grid, servers_and_gpus
from topologies.ranks.ring_order import ring_order
from workloads.base.entry import Algorithm


def group(entry: Algorithm, ranks: Sequence[int] | None, fabric: Fabric) -> dict[str, Any]:
    """`ranks` (None: all, by number), and the `dims` of their grid where the algorithm needs one.  Raises NoGrid."""
    everybody = list(ranks) if ranks is not None else list(range(fabric.ranks))
    if entry.layout == "grid":
        return {"ranks": sorted(everybody), "dims": list(grid(fabric, everybody))}
    if entry.layout == "domains":
        return {"ranks": sorted(everybody), "dims": list(servers_and_gpus(fabric, everybody))}
    if entry.layout == "ring" and ranks is None:
        return {"ranks": ring_order(fabric)}
    return {"ranks": None if ranks is None else list(ranks)}
