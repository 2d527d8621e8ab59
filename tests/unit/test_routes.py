"""Routes, by carrying out the flow tables: every packet arrives, on a shortest path, with and without failed cables."""

from __future__ import annotations

from ipaddress import IPv4Address
from math import ceil, log2

import networkx as nx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controllers.flows import COOKIE_MAGIC, COOKIE_MAGIC_MASK, MEMBER, Flow, Hash
from controllers.routing.routes import ROUTINGS, Router, RoutingError, routes
from tests.parts.custom_networks import networks
from tests.parts.flow_tables import outputs, walk
from topologies import Cable, Fabric, build
from topologies.graph.fabric import OWN_PORTS

small = st.integers(1, 4)

fabrics = st.one_of(
    st.builds(lambda s, g, p: build("rail", {"servers": s, "gpus": g, "spines": p}), small, small, small),
    st.builds(lambda n, s, h: build("clos", {"leaves": n, "spines": s, "hosts_per_leaf": h}), small, small, small),
    st.builds(
        lambda n, s, p, c: build("clos", {"leaves": n, "spines": s, "hosts_per_leaf": 2, "pods": p, "cores": c}),
        small, small, st.integers(2, 3), small,
    ),
    st.builds(lambda n: build("star", {"hosts": n}), st.integers(1, 9)),
    st.builds(lambda n: build("ring", {"nodes": n}), st.integers(2, 11)),
    st.builds(
        lambda d: build("torus", {"dims": d}),
        st.lists(st.integers(2, 5), min_size=1, max_size=3).filter(lambda d: len(d) < 3 or max(d) < 4),
    ),
    st.builds(lambda d: build("torus", {"dims": d, "direct": True}), st.sampled_from([[3, 3], [2, 4], [5]])),
    st.builds(lambda n, k: build("star", {"hosts": n, "links": k}), st.integers(1, 5), st.integers(2, 3)),
    st.builds(
        lambda n, s, h: build("clos", {"leaves": 2 * n, "spines": s, "hosts_per_leaf": h, "links": 2}),
        st.integers(1, 2), small, st.integers(1, 2),
    ),
    networks(),
)  # fmt: skip


def trunks(fabric: Fabric) -> list[Cable]:
    """The cables between switches."""
    return [c for c in fabric.cables if {c.a.node, c.b.node} <= set(fabric.switch_by_name)]


@st.composite
def fabrics_with_failures(draw: st.DrawFn) -> tuple[Fabric, list[Cable]]:
    fabric = draw(fabrics)
    cables = trunks(fabric)
    failed = draw(st.lists(st.sampled_from(cables), unique=True, max_size=4)) if cables else []
    return fabric, failed


def ends_of(cables: list[Cable]) -> frozenset[tuple[str, int]]:
    return frozenset((c.a.node, c.a.port) for c in cables)


def check_all_pairs(fabric: Fabric, tables: dict[str, list[Flow]], failed: list[Cable]) -> None:
    graph = fabric.graph.copy()
    graph.remove_edges_from((c.a.node, c.b.node) for c in failed)
    closed = {s.name for s in fabric.switches if s.role == OWN_PORTS}
    for source in fabric.nics:
        hops = nx.single_source_shortest_path_length(graph, source.name)
        for target in fabric.nics:
            if closed:
                own = {fabric.cable_at[n.name, 1].other(n.name).node for n in (source, target)}
                open_to_them = nx.restricted_view(graph, closed - own, [])
                hops = nx.single_source_shortest_path_length(open_to_them, source.name)
            ends = walk(fabric, tables, source.name, target.ip)
            if target.name == source.name:
                assert set(ends) == {target.name}
            elif target.name in hops:
                assert ends == {target.name: {hops[target.name] - 1}}, f"{source.name} to {target.name}"
            else:
                assert all(end.startswith("drop") for end in ends)


@given(fabrics)
@settings(deadline=None, max_examples=20)
def test_every_packet_arrives_on_a_shortest_path(fabric: Fabric) -> None:
    check_all_pairs(fabric, routes(fabric), [])


@given(fabrics_with_failures())
@settings(deadline=None, max_examples=30)
def test_failed_cables_are_routed_around(case: tuple[Fabric, list[Cable]]) -> None:
    fabric, failed = case
    check_all_pairs(fabric, routes(fabric, ends_of(failed)), failed)


@given(fabrics_with_failures(), st.data())
@settings(deadline=None, max_examples=20)
def test_unknown_addresses_end_in_a_drop(case: tuple[Fabric, list[Cable]], data: st.DataObject) -> None:
    fabric, failed = case
    tables = routes(fabric, ends_of(failed))
    known = {n.ip for n in fabric.nics}
    near = st.builds(
        lambda nic, bits: IPv4Address(int(nic.ip) ^ bits), st.sampled_from(fabric.nics), st.integers(0, 0x1FFFF)
    )
    anywhere = st.integers(0x0A000000, 0x0AFFFFFF).map(IPv4Address)
    for address in data.draw(st.lists(st.one_of(near, anywhere), min_size=10, max_size=10)):
        if address not in known:
            for source in fabric.nics:
                assert all(end.startswith("drop") for end in walk(fabric, tables, source.name, address))


@given(fabrics_with_failures(), st.data())
@settings(deadline=None, max_examples=15)
def test_a_missing_flow_stops_its_traffic_at_that_switch(case: tuple[Fabric, list[Cable]], data: st.DataObject) -> None:
    fabric, failed = case
    tables = routes(fabric, ends_of(failed))
    switch = data.draw(st.sampled_from([s.name for s in fabric.switches if tables[s.name]]))
    gone = data.draw(st.sampled_from([f for f in tables[switch] if f.table != MEMBER]))
    holed = {**tables, switch: [f for f in tables[switch] if f != gone]}
    for target in fabric.nics:
        if outputs(tables[switch], target.ip) and not outputs(holed[switch], target.ip):
            for source in fabric.nics:
                before = walk(fabric, tables, source.name, target.ip)
                after = walk(fabric, holed, source.name, target.ip)
                assert set(after) <= {*before, f"drop {switch}"}


@given(fabrics_with_failures())
@settings(deadline=None, max_examples=10)
def test_cookies_are_those_of_the_contents(case: tuple[Fabric, list[Cable]]) -> None:
    fabric, failed = case
    first, again = routes(fabric, ends_of(failed)), routes(fabric, ends_of(failed))
    for switch, flows in first.items():
        cookies = [f.cookie for f in flows]
        assert len(set(cookies)) == len(cookies) == len(set(flows))
        assert all(c & COOKIE_MAGIC_MASK == COOKIE_MAGIC for c in cookies)
        assert cookies == [f.cookie for f in again[switch]]


@given(fabrics_with_failures())
@settings(deadline=None, max_examples=15)
def test_either_end_down_is_the_cable_down(case: tuple[Fabric, list[Cable]]) -> None:
    fabric, failed = case
    other_ends = frozenset((c.b.node, c.b.port) for c in failed)
    assert routes(fabric, ends_of(failed)) == routes(fabric, other_ends) == routes(
        fabric, ends_of(failed) | other_ends
    )  # fmt: skip


@given(fabrics, st.data())
@settings(deadline=None, max_examples=20)
def test_a_nics_own_cable_has_no_way_around(fabric: Fabric, data: st.DataObject) -> None:
    end = fabric.cable_at[data.draw(st.sampled_from(fabric.nics)).name, 1]
    assert routes(fabric, {(end.a.node, end.a.port), (end.b.node, end.b.port)}) == routes(fabric)


def largest_table(kind: str, **params: object) -> int:
    return max(len(flows) for flows in routes(build(kind, params)).values())


def test_tables_stay_small() -> None:
    # Prefixes to others + one flow for each own NIC + one for each member of a group + the ARP responder.
    assert largest_table("star", hosts=100) == 100 + 1
    assert largest_table("rail", servers=64, gpus=8, spines=8) <= log2(8) + 64 + 8 + 1
    assert largest_table("clos", leaves=16, spines=8, hosts_per_leaf=32) <= log2(16) + 32 + 8 + 1
    # A core has a group for each pod: its spines.
    assert largest_table("clos", leaves=8, spines=8, hosts_per_leaf=4, pods=8, cores=8) <= 8 * (1 + 8)
    assert largest_table("ring", nodes=128) <= 2 * 7 + 2
    for dims in ([16, 16], [6, 6, 6], [3, 5, 7], [4, 4, 4, 4]):
        assert largest_table("torus", dims=dims) <= sum(2 * ceil(log2(d)) for d in dims) + 2


def test_a_failure_in_a_torus_leaves_tables_small() -> None:
    fabric = build("torus", {"dims": [16, 16]})
    tables = routes(fabric, ends_of(trunks(fabric)[:1]))
    assert max(len(flows) for flows in tables.values()) <= 64  # of 256 destinations


def test_rail_crosses_on_every_spine() -> None:
    fabric = build("rail", {"servers": 4, "gpus": 2, "spines": 3})
    tables = routes(fabric)
    assert walk(fabric, tables, "h0.0", fabric.nic_by_name["h3.0"].ip) == {"h3.0": {1}}
    assert walk(fabric, tables, "h0.0", fabric.nic_by_name["h0.1"].ip) == {"h0.1": {3}}
    up = outputs(tables["rail0"], fabric.nic_by_name["h3.1"].ip)
    assert {fabric.cable_at["rail0", p].other("rail0").node for p in up} == {"spine0", "spine1", "spine2"}
    down = {("rail0", min(up))}
    assert outputs(routes(fabric, down)["rail0"], fabric.nic_by_name["h3.1"].ip) == up - {min(up)}


def test_a_spine_that_lost_a_rail_is_avoided_by_the_others() -> None:
    fabric = build("rail", {"servers": 2, "gpus": 3, "spines": 2})
    lost = fabric.cable("rail1-spine0")
    tables = routes(fabric, ends_of([lost]))

    def spines(rail: str, nic: str) -> set[str]:
        ports = outputs(tables[rail], fabric.nic_by_name[nic].ip)
        return {fabric.cable_at[rail, p].other(rail).node for p in ports}

    assert spines("rail0", "h1.1") == {"spine1"}
    assert spines("rail0", "h1.2") == {"spine0", "spine1"}


def test_switches_in_a_row_hash_differently() -> None:
    fabric = build("clos", {"leaves": 2, "spines": 2, "hosts_per_leaf": 1, "pods": 2, "cores": 2})
    bases = {
        name: {a.basis for flow in flows for a in flow.actions if isinstance(a, Hash)}
        for name, flows in routes(fabric).items()
    }
    leaf, spine = bases["leaf0"], bases["spine0"]
    assert leaf and spine and not leaf & spine


@pytest.mark.parametrize("routing", ["ecmp", "dimension_order"])
def test_torus_corrects_the_lowest_dimension_first(routing: str) -> None:
    fabric = build("torus", {"dims": [4, 3, 2]})
    tables = routes(fabric, routing=routing)
    for source in fabric.switches:
        for nic in fabric.nics:
            place, corrected = source, 0
            while nic.name not in (node := _next(fabric, tables, place.name, nic.ip)):
                after = fabric.switch_by_name[node]
                moved = next(i for i in range(3) if place.place[i] != after.place[i])
                assert moved >= corrected
                place, corrected = after, moved


def _next(fabric: Fabric, tables: dict[str, list[Flow]], switch: str, ip: IPv4Address) -> str:
    (port,) = outputs(tables[switch], ip)
    return fabric.cable_at[switch, port].other(switch).node


def test_half_way_round_goes_up() -> None:
    fabric = build("ring", {"nodes": 4})
    assert _next(fabric, routes(fabric), "sw0", fabric.nics[2].ip) == "sw1"
    assert _next(fabric, routes(fabric), "sw3", fabric.nics[1].ip) == "sw0"


def test_ring_goes_the_other_way_round() -> None:
    fabric = build("ring", {"nodes": 6})
    tables = routes(fabric, ends_of([fabric.cable("sw0-sw1")]))
    assert walk(fabric, tables, "h0", fabric.nics[1].ip) == {"h1": {6}}
    assert walk(fabric, tables, "h1", fabric.nics[0].ip) == {"h0": {6}}


def test_a_cut_ring_drops_what_cannot_arrive() -> None:
    fabric = build("ring", {"nodes": 4})
    tables = routes(fabric, ends_of([fabric.cable("sw0-sw1"), fabric.cable("sw2-sw3")]))
    assert walk(fabric, tables, "h0", fabric.nics[1].ip) == {"drop sw0": {1}}
    assert walk(fabric, tables, "h0", fabric.nics[3].ip) == {"h3": {2}}


def test_routings_that_do_not_fit_are_refused() -> None:
    with pytest.raises(RoutingError, match=r"unknown routing 'fastest' \(known: ecmp, dimension_order, adaptive\)"):
        Router(build("star", {"hosts": 2}), "fastest")
    with pytest.raises(RoutingError, match="'dimension_order' does not fit a rail"):
        Router(build("rail", {"servers": 2, "gpus": 2}), "dimension_order")
    with pytest.raises(RoutingError, match="'adaptive' does not fit a ring: it would undo the dateline"):
        Router(build("ring", {"nodes": 3}), "adaptive")
    for name in ROUTINGS.keys() - {"adaptive"}:
        Router(build("ring", {"nodes": 3}), name)
