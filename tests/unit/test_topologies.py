"""Fabrics obey the structure that their kind promises, whatever their parameters."""

from __future__ import annotations

import json
from ipaddress import IPv4Address
from itertools import product
from math import prod

import networkx as nx
import pytest
from hypothesis import given

from tests.parts.drawn_fabrics import closes, directs, fabrics, rails, rings, several, stars, switched, toruses
from topologies import KINDS, End, Fabric, TopologyError, build, validate
from topologies.graph import address, search
from topologies.graph.fabric import FORWARDS, OWN_PORTS
from topologies.graph.smartnic import with_complexes
from topologies.kinds import dimensions


def names(fabric: Fabric, role: str) -> list[str]:
    return [s.name for s in fabric.switches if s.role == role]


def farthest(fabric: Fabric) -> int:
    """Cables between the two NICs that are farthest apart."""
    distance = dict(nx.all_pairs_shortest_path_length(fabric.graph))
    return max(int(distance[a.name][b.name]) for a in fabric.nics for b in fabric.nics)


# -- every kind ---------------------------------------------------------------------------------------------------


@given(fabrics)
def test_what_holds_for_every_fabric(fabric: Fabric) -> None:
    validates_and_survives_json(fabric)
    params_are_complete_and_build_the_same_again(fabric)
    nics_are_named_and_addressed_by_their_place(fabric)
    cables_are_found_under_both_names(fabric)
    parts_and_distances_are_those_of_networkx(fabric)


def validates_and_survives_json(fabric: Fabric) -> None:
    assert validate(fabric) is fabric
    assert Fabric.from_dict(json.loads(json.dumps(fabric.to_dict()))) == fabric
    assert Fabric.from_dict(fabric.to_dict()) == fabric


def params_are_complete_and_build_the_same_again(fabric: Fabric) -> None:
    assert set(fabric.params) == {p.name for p in KINDS[fabric.kind].parameters()}
    assert build(fabric.kind, fabric.params) == fabric


def parts_and_distances_are_those_of_networkx(fabric: Fabric) -> None:
    for without in (set[str](), {s.name for s in fabric.switches[::2]}, {s.name for s in fabric.switches}):
        view = nx.restricted_view(fabric.graph, without, [])
        assert search.parts(fabric, without) == list(nx.connected_components(view))
        first = next(iter(view))
        assert search.hops(fabric, first, without) == nx.single_source_shortest_path_length(view, first)


@given(switched)
def test_hosts_have_a_switchs_first_ports_in_rank_order(fabric: Fabric) -> None:
    for switch in fabric.switches:
        far = [fabric.cable_at[switch.name, port].other(switch.name).node for port in range(1, switch.ports + 1)]
        ranks = [fabric.nic_by_name[node].rank for node in far if node in fabric.nic_by_name]
        assert far[: len(ranks)] == [fabric.nics[r].name for r in sorted(ranks)]
        order = [c.name for c in fabric.cables]
        rest = [order.index(fabric.cable_at[switch.name, p].name) for p in range(len(ranks) + 1, switch.ports + 1)]
        assert rest == sorted(rest)


def nics_are_named_and_addressed_by_their_place(fabric: Fabric) -> None:
    assert [n.rank for n in fabric.nics] == list(range(len(fabric.nics)))
    assert [n for h in fabric.hosts for n in h.nics] == [n.name for n in fabric.nics]
    prefix = "x" if fabric.kind == "custom" else "h"
    assert [h.name for h in fabric.hosts] == [f"{prefix}{i}" for i in range(len(fabric.hosts))]
    for nic in fabric.nics:
        assert nic.name == (
            f"{nic.host}.{nic.gpu}" if fabric.kind == "rail" or fabric.params.get("gpus", 1) > 1 else nic.host
        )
        assert nic.mac == "02:00:" + ":".join(f"{int(part):02x}" for part in str(nic.ip).split("."))
        assert str(nic.ip).startswith("10.")


def cables_are_found_under_both_names(fabric: Fabric) -> None:
    for cable in fabric.cables:
        assert fabric.cable(cable.name) is cable
        assert fabric.cable(f"{cable.b.node}-{cable.a.node}") is cable
        assert cable.other(cable.a.node) == cable.b
        assert cable.end(cable.b.node) == cable.b
    with pytest.raises(KeyError):
        fabric.cable("h0-h0")


# -- rail ---------------------------------------------------------------------------------------------------------


@given(rails())
def test_rail_structure_and_addresses(fabric: Fabric) -> None:
    rail_addresses(fabric)
    servers, gpus, spines = (fabric.params[k] for k in ("servers", "gpus", "spines"))
    assert (len(fabric.hosts), len(fabric.nics)) == (servers, servers * gpus)
    assert names(fabric, "rail") == [f"rail{r}" for r in range(gpus)]
    assert names(fabric, "spine") == [f"spine{i}" for i in range(spines)]
    assert len(fabric.cables) == servers * gpus + gpus * spines
    for nic in fabric.nics:
        assert nic.rank == int(nic.host[1:]) * gpus + nic.gpu
        assert fabric.cable_at[nic.name, 1].other(nic.name).node == f"rail{nic.gpu}"
    assert [s.ports for s in fabric.switches] == [servers + spines] * gpus + [gpus] * spines
    assert fabric.scale_up == (tuple(h.nics for h in fabric.hosts) if gpus > 1 else ())
    if servers > 1:
        assert farthest(fabric) == (4 if gpus > 1 else 2)


def rail_addresses(fabric: Fabric) -> None:
    for nic in fabric.nics:
        server = int(nic.host[1:])
        assert nic.ip == IPv4Address(f"10.{nic.gpu}.0.{server + 1}") == address.rail_ip(nic.gpu, server)


# -- clos ---------------------------------------------------------------------------------------------------------


@given(closes())
def test_clos_structure_and_addresses(fabric: Fabric) -> None:
    clos_addresses(fabric)
    p = fabric.params
    leaves, spines, pods, cores = p["leaves"], p["spines"], p["pods"], p["cores"]
    each = p["hosts_per_leaf"] * p["gpus"]
    assert names(fabric, "leaf") == [f"leaf{i}" for i in range(pods * leaves)]
    assert names(fabric, "spine") == [f"spine{i}" for i in range(pods * spines)]
    assert names(fabric, "core") == [f"core{i}" for i in range(cores)]
    assert len(fabric.nics) == pods * leaves * each
    assert len(fabric.cables) == pods * leaves * (each + spines) + pods * spines * cores
    ports = {"leaf": each + spines, "spine": leaves + cores, "core": pods * spines}
    assert all(s.ports == ports[s.role] for s in fabric.switches)
    assert farthest(fabric) == (6 if pods > 1 else 4 if leaves > 1 else 2 if each > 1 else 0)
    for pod, leaf, spine in product(range(pods), range(leaves), range(spines)):
        assert f"leaf{pod * leaves + leaf}-spine{pod * spines + spine}" in fabric.cable_by_name


def clos_addresses(fabric: Fabric) -> None:
    p = fabric.params
    for nic in fabric.nics:
        leaf, host = divmod(nic.rank, p["hosts_per_leaf"] * p["gpus"])
        pod, leaf = divmod(leaf, p["leaves"])
        assert nic.ip == IPv4Address(f"10.{pod}.{leaf}.{host + 1}")
        switch = fabric.switch_by_name[fabric.cable_at[nic.name, 1].b.node]
        assert switch.place == (pod, leaf)


@given(closes())
def test_hosts_of_a_clos_are_servers_of_gpus(fabric: Fabric) -> None:
    gpus = fabric.params["gpus"]
    hosts = [f"h{k}" for k in range(len(fabric.nics) // gpus)]
    servers = [tuple(f"{h}.{g}" for g in range(gpus)) if gpus > 1 else (h,) for h in hosts]
    assert [(h.name, h.nics) for h in fabric.hosts] == list(zip(hosts, servers, strict=True))
    assert fabric.scale_up == (tuple(servers) if gpus > 1 else ())
    assert dimensions(fabric) == ((len(hosts), gpus) if gpus > 1 else ())


# -- torus, ring, star ----------------------------------------------------------------------------------------------


@given(toruses | rings)
def test_torus_structure_and_addresses(fabric: Fabric) -> None:
    torus_addresses(fabric)
    dims = dimensions(fabric)
    nodes = prod(dims)
    assert len(fabric.nics) == len(fabric.switches) == nodes
    # A dimension of 2 has one cable between its two nodes, not two.
    assert len(fabric.cables) == nodes + sum(nodes if size > 2 else nodes // 2 for size in dims)
    assert {s.ports for s in fabric.switches} == {1 + sum(2 if size > 2 else 1 for size in dims)}
    assert farthest(fabric) == 2 + sum(size // 2 for size in dims)
    for rank, (switch, nic) in enumerate(zip(fabric.switches, fabric.nics, strict=True)):
        assert switch.name == "sw" + "-".join(map(str, switch.place))
        assert fabric.cable_at[nic.name, 1].b == End(switch.name, 1)
        assert nic.rank == rank
    for cable in fabric.cables[nodes:]:
        a, b = (fabric.switch_by_name[end.node].place for end in (cable.a, cable.b))
        moved = [(x - y) % size for x, y, size in zip(a, b, dims, strict=True) if x != y]
        size = next(size for x, y, size in zip(a, b, dims, strict=True) if x != y)
        assert len(moved) == 1
        assert moved[0] in (1, size - 1)


def torus_addresses(fabric: Fabric) -> None:
    dims = dimensions(fabric)
    for switch, nic in zip(fabric.switches, fabric.nics, strict=True):
        assert nic.ip == address.torus_ip(dims, switch.place)
        left = int(nic.ip) - int(IPv4Address("10.0.0.0"))
        assert left & 1
        for size, coordinate in reversed(list(zip(dims, switch.place, strict=True))):
            bits = (size - 1).bit_length()
            assert (left >> 1) % (1 << bits) == coordinate
            left = (left >> 1 >> bits) << 1
        assert left == 0


def test_torus_addresses_by_hand() -> None:
    # 3 x 4: two bits each, dimension 0 in the higher ones, and a 1 behind: (2, 1) = 10 01 1.
    assert address.torus_ip([3, 4], [2, 1]) == IPv4Address("10.0.0.19")
    assert str(address.one(IPv4Address("10.0.0.9"))) == "10.0.0.9/255.255.255.255"


def test_largest_addresses_stay_in_their_fields() -> None:
    assert address.rail_ip(253, 253) == IPv4Address("10.253.0.254")
    assert address.clos_ip(253, 253, 252) == IPv4Address("10.253.253.253")
    last = build("torus", {"dims": [2] * 10}).nics[-1]
    assert last.ip == IPv4Address("10.0.7.255")


@given(rings)
def test_ring_is_a_torus_of_one_dimension(fabric: Fabric) -> None:
    torus = build("torus", {"dims": [fabric.params["nodes"]]})
    assert (torus.nics, torus.switches, torus.cables) == (fabric.nics, fabric.switches, fabric.cables)


def test_two_nodes_share_one_cable() -> None:
    fabric = build("ring", {"nodes": 2})
    assert [c.name for c in fabric.cables] == ["h0-sw0", "h1-sw1", "sw0-sw1"]


@given(stars)
def test_star_structure(fabric: Fabric) -> None:
    (switch,) = fabric.switches
    assert (switch.name, switch.ports) == ("sw0", len(fabric.nics))
    assert [c.name for c in fabric.cables] == [f"h{i}-sw0" for i in range(fabric.params["hosts"])]
    for nic in fabric.nics:
        assert nic.ip == IPv4Address(f"10.0.0.{nic.rank + 1}")


# -- NICs with several ports, and NICs that forward ------------------------------------------------------------------


@given(directs)
def test_a_direct_network_is_the_switched_one_with_the_switches_in_the_nics(fabric: Fabric) -> None:
    same = build(fabric.kind, {**fabric.params, "direct": False})
    assert [n.ip for n in fabric.nics] == [n.ip for n in same.nics]
    assert [(s.place, s.ports) for s in fabric.switches] == [(s.place, s.ports) for s in same.switches]
    assert [c.name for c in fabric.cables] == [c.name.replace("sw", "nic") for c in same.cables]
    assert {s.role for s in fabric.switches} == {FORWARDS}
    assert fabric.inside == {c.name for c in fabric.cables[: len(fabric.nics)]}
    assert fabric.to_hosts == frozenset()  # all cables are between NICs
    for nic in fabric.nics:
        bridge = fabric.bridge_of(nic.name)
        assert bridge is not None
        assert fabric.cable_at[nic.name, 1].b == End(bridge.name, 1)


@given(several)
def test_a_nic_with_several_ports_has_one_on_each_of_its_switches(fabric: Fabric) -> None:
    links = fabric.params["links"]
    for nic in fabric.nics:
        bridge = fabric.bridge_of(nic.name)
        assert bridge is not None
        assert (bridge.name, bridge.role, bridge.ports) == (f"nic{nic.rank}", OWN_PORTS, 1 + links)
        above = [fabric.cable_at[bridge.name, port].other(bridge.name).node for port in range(2, 2 + links)]
        on_leaf = fabric.params.get("hosts_per_leaf", 10**6) * fabric.params.get("gpus", 1)
        first = nic.rank // on_leaf // links * links
        name = "sw" if fabric.kind == "star" else "leaf"
        assert above == [f"{name}{first + k}" for k in range(links)]
        assert {fabric.cable_at[bridge.name, p].name for p in range(2, 2 + links)} <= fabric.to_hosts


def test_smartnics_of_their_own_bridge_have_no_second_one() -> None:
    with pytest.raises(TopologyError, match="have a bridge of their own"):
        with_complexes(build("ring", {"nodes": 3, "direct": True}))
