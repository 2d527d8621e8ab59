"""Breadth-first search over a fabric. Every command asks for it, and networkx would take longer to import."""

from __future__ import annotations

from collections.abc import Container

from topologies.graph.fabric import Fabric


def hops(fabric: Fabric, source: str, without: Container[str] = ()) -> dict[str, int]:
    """How many cables lie between a NIC or switch and every one that it reaches, if no path leads over `without`."""
    neighbours = fabric.neighbours
    distance = {source: 0}
    queue = [source]
    for node in queue:
        for far in neighbours[node]:
            if far not in distance and far not in without:
                distance[far] = distance[node] + 1
                queue.append(far)
    return distance


def parts(fabric: Fabric, without: Container[str] = ()) -> list[set[str]]:
    """The parts of the graph that are connected, if these nodes are not there."""
    components: list[set[str]] = []
    seen: set[str] = set()
    for node in fabric.neighbours:
        if node not in seen and node not in without:
            components.append(set(hops(fabric, node, without)))
            seen |= components[-1]
    return components
