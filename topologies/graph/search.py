"""Breadth-first search over a fabric. Every command asks for it, and networkx would take longer to import."""

from __future__ import annotations

from collections.abc import Container

from topologies.graph.fabric import Fabric


def hops(fabric: Fabric, source: str, without: Container[str] = ()) -> dict[str, int]:
    """How many cables lie between a NIC or switch and every one that it reaches, if no path leads over `without`."""
    beside = fabric.neighbours
    found = {source: 0}
    queue = [source]
    for node in queue:
        for far in beside[node]:
            if far not in found and far not in without:
                found[far] = found[node] + 1
                queue.append(far)
    return found


def parts(fabric: Fabric, without: Container[str] = ()) -> list[set[str]]:
    """The parts of the graph that are connected, if these nodes are not there."""
    found: list[set[str]] = []
    seen: set[str] = set()
    for node in fabric.neighbours:
        if node not in seen and node not in without:
            found.append(set(hops(fabric, node, without)))
            seen |= found[-1]
    return found
