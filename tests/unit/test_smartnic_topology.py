"""Off-path SmartNICs as topology: what is added, that it is routed, and that it can be taken away again."""

from __future__ import annotations

import json

import networkx as nx
import pytest

from controllers.routing.routes import Router
from tests.parts.channels import dependencies, hop
from topologies import TopologyError, build, validate
from topologies.drawing import as_svg, as_text
from topologies.graph.fabric import End, Fabric
from topologies.graph.smartnic import with_complexes, without_complexes
from topologies.graph.targets import AllTarget, resolve
from topologies.ranks.ring_order import ring_order

SHAPES = [
    ("star", {"hosts": 3}), ("rail", {"servers": 2, "gpus": 2}),
    ("clos", {"leaves": 2, "spines": 2, "hosts_per_leaf": 2}),
    ("clos", {"leaves": 2, "spines": 1, "hosts_per_leaf": 1, "pods": 2, "cores": 1}), ("ring", {"nodes": 4}),
    ("torus", {"dims": [3, 3]}),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "params"), SHAPES)
def test_every_nic_gets_a_bridge_and_a_complex(kind: str, params: dict[str, object]) -> None:
    plain = build(kind, params)
    fabric = with_complexes(plain)
    n = len(plain.nics)
    assert (fabric.ranks, len(fabric.nics), len(fabric.switches)) == (n, 2 * n, len(plain.switches) + n)
    assert fabric.nics[:n] == plain.nics and fabric.switches[: len(plain.switches)] == plain.switches
    for nic in plain.nics:
        above = plain.cable_at[nic.name, 1].other(nic.name)
        bridge = f"nic{nic.rank}"
        behind = [fabric.cable_at[bridge, port].other(bridge) for port in (1, 2, 3)]
        assert behind == [End(nic.name, 1), End(f"arm{nic.rank}", 1), above]
    assert len(fabric.inside) == 2 * n
    everything = resolve(fabric, "all")
    assert isinstance(everything, AllTarget) and len(everything.cables) == len(plain.cables)
    assert Fabric.from_dict(json.loads(json.dumps(fabric.to_dict()))) == fabric
    assert without_complexes(fabric) == plain
    assert ring_order(fabric) == ring_order(plain)
    assert as_svg(fabric) == as_svg(plain) and "arm0" in as_text(fabric)


@pytest.mark.parametrize(("kind", "params"), SHAPES)
def test_everybody_reaches_everybody_on_a_shortest_path(kind: str, params: dict[str, object]) -> None:
    fabric = with_complexes(build(kind, params))
    tables = Router(fabric, dateline=True).flows()
    for source in fabric.nics:
        reach = nx.single_source_shortest_path_length(fabric.graph, source.name)
        for target in fabric.nics:
            if source is target:
                continue
            at, hops, dscp = fabric.cable_at[source.name, 1].other(source.name).node, 1, 26
            while at != target.name:
                port, dscp = _first(fabric, tables, at, int(target.ip), dscp)
                at = fabric.cable_at[at, port].other(at).node
                hops += 1
                assert hops <= reach[target.name]


def _first(fabric: Fabric, tables: dict, at: str, address: int, dscp: int) -> tuple[int, int]:
    """The port that a frame leaves by; of equal ones the first."""
    try:
        return hop(tables[at], address, dscp)
    except StopIteration:  # a hash decides: any shortest one
        target = next(n.name for n in fabric.nics if int(n.ip) == address)
        path = nx.shortest_path(fabric.graph, at, target)
        return fabric.graph.edges[at, path[1]]["cable"].end(at).port, dscp


@pytest.mark.parametrize(("kind", "params"), [("ring", {"nodes": 5}), ("torus", {"dims": [3, 4]})])
def test_the_dateline_still_breaks_every_circle(kind: str, params: dict[str, object]) -> None:
    fabric = with_complexes(build(kind, params))
    assert nx.is_directed_acyclic_graph(dependencies(fabric, dateline=True))


def test_too_large_fabrics_are_refused() -> None:
    with pytest.raises(TopologyError, match="at most 1024"):
        with_complexes(build("torus", {"dims": [32, 32]}))
    with pytest.raises(TopologyError, match="no address is left for the complex of h0.128"):
        with_complexes(build("rail", {"servers": 1, "gpus": 129}))


def test_it_is_valid_and_stays_so() -> None:
    assert validate(with_complexes(build("star", {"hosts": 2})))
