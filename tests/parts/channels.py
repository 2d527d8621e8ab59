"""The graph of channels that frames wait for, from the flow tables."""

from __future__ import annotations

from collections.abc import Iterator

import networkx as nx

from controllers.flows import ROUTE, Flow, Output, SetDscp
from controllers.routing.dateline import DSCP
from controllers.routing.routes import Router
from topologies.graph.fabric import Fabric


def hop(flows: list[Flow], address: int, dscp: int) -> tuple[int, int]:
    """Port and DSCP with which a data frame leaves a switch, by the matching flow of the highest priority."""
    found = []
    for flow in flows:
        match = dict(flow.match)
        destination = match.get("ipv4_dst")
        if flow.table != ROUTE or not isinstance(destination, tuple) or match.get("ip_dscp", dscp) != dscp:
            continue
        network, mask = (int.from_bytes(bytes(map(int, part.split("."))), "big") for part in destination)
        if address & mask == network:
            found.append(flow)
    flow = max(found, key=lambda f: f.priority)
    out = next(a.port for a in flow.actions if isinstance(a, Output))
    return out, next((a.value for a in flow.actions if isinstance(a, SetDscp)), dscp)


def ways(fabric: Fabric, dateline: bool) -> Iterator[list[tuple[str, int, int]]]:
    """For each pair of NICs the channels, (switch, port, DSCP), that its data frames wait for, in order."""
    tables = Router(fabric, dateline=dateline).flows()
    for source in fabric.nics:
        for target in fabric.nics:
            if source is target:
                continue
            at, dscp, way = fabric.cable_at[source.name, 1].other(source.name).node, DSCP, []
            while at != target.name:
                port, dscp = hop(tables[at], int(target.ip), dscp)
                way.append((at, port, dscp))
                at = fabric.cable_at[at, port].other(at).node
                assert len(way) <= len(fabric.switches), "it goes round and round"
            yield way


def dependencies(fabric: Fabric, dateline: bool) -> nx.DiGraph:
    graph = nx.DiGraph()
    for way in ways(fabric, dateline):
        nx.add_path(graph, way)
    return graph
