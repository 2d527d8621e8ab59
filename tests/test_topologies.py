"""Fabrics obey the structure that their kind promises, whatever their parameters."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from dataclasses import replace
from ipaddress import IPv4Address
from itertools import product
from math import prod
from typing import Any

import networkx as nx
import pytest
from custom_networks import networks
from hypothesis import given
from hypothesis import strategies as st

import topologies
from topologies import KINDS, Cable, End, Fabric, TopologyError, address, build, validate
from topologies.fabric import FORWARDS, OWN_PORTS
from topologies.smartnic import with_complexes
from topologies.torus import dimensions

small = st.integers(1, 5)
sizes = st.lists(st.integers(2, 5), min_size=1, max_size=4).filter(lambda dims: prod(dims) <= 200)


@st.composite
def rails(draw: st.DrawFn) -> Fabric:
    gpus = draw(small)
    return build("rail", {"servers": draw(small), "gpus": gpus, "spines": draw(st.integers(int(gpus > 1), 4))})


@st.composite
def closes(draw: st.DrawFn) -> Fabric:
    pods = draw(st.integers(1, 4))
    params = {"leaves": draw(small), "spines": draw(small), "hosts_per_leaf": draw(small), "pods": pods}
    return build("clos", params | {"cores": draw(small) if pods > 1 else 0})


rings = st.integers(2, 24).map(lambda n: build("ring", {"nodes": n}))
toruses = sizes.map(lambda dims: build("torus", {"dims": dims}))
stars = st.integers(1, 40).map(lambda n: build("star", {"hosts": n}))
directs = sizes.map(lambda dims: build("torus", {"dims": dims, "direct": True})) | st.integers(2, 24).map(
    lambda n: build("ring", {"nodes": n, "direct": True})
)
several = st.builds(lambda n, links: build("star", {"hosts": n, "links": links}), st.integers(1, 12), st.integers(2, 4))
several |= st.builds(
    lambda groups, links, hosts, spines: build(
        "clos", {"leaves": groups * links, "spines": spines, "hosts_per_leaf": hosts, "links": links}
    ),
    st.integers(1, 3), st.integers(2, 3), st.integers(1, 3), small,
)  # fmt: skip
switched = rails() | closes() | rings | toruses | stars
fabrics = switched | directs | several | networks()


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


def validates_and_survives_json(fabric: Fabric) -> None:
    assert validate(fabric) is fabric
    assert Fabric.from_dict(json.loads(json.dumps(fabric.to_dict()))) == fabric
    assert Fabric.from_dict(fabric.to_dict()) == fabric


def params_are_complete_and_build_the_same_again(fabric: Fabric) -> None:
    assert set(fabric.params) == {p.name for p in KINDS[fabric.kind].parameters()}
    assert build(fabric.kind, fabric.params) == fabric


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
        assert nic.name == (f"{nic.host}.{nic.gpu}" if fabric.kind == "rail" else nic.host)
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
        assert address.rail_place(nic.ip) == (nic.gpu, server)
        assert [r for r in range(fabric.params["gpus"]) if address.rail_net(r).covers(nic.ip)] == [nic.gpu]


# -- clos ---------------------------------------------------------------------------------------------------------


@given(closes())
def test_clos_structure_and_addresses(fabric: Fabric) -> None:
    clos_addresses(fabric)
    p = fabric.params
    leaves, spines, pods, cores, each = p["leaves"], p["spines"], p["pods"], p["cores"], p["hosts_per_leaf"]
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
        leaf, host = divmod(nic.rank, p["hosts_per_leaf"])
        pod, leaf = divmod(leaf, p["leaves"])
        assert nic.ip == IPv4Address(f"10.{pod}.{leaf}.{host + 1}")
        assert address.clos_place(nic.ip) == (pod, leaf, host)
        switch = fabric.switch_by_name[fabric.cable_at[nic.name, 1].b.node]
        assert switch.place == (pod, leaf)
        inside = [(q, i) for q in range(p["pods"]) for i in range(p["leaves"]) if address.clos_net(q, i).covers(nic.ip)]
        assert inside == [(pod, leaf)]
        assert [q for q in range(p["pods"]) if address.clos_net(q).covers(nic.ip)] == [pod]


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
        assert address.torus_place(dims, nic.ip) == switch.place
        assert int(nic.ip) & 1
        for axis, size in enumerate(dims):
            match = [c for c in range(size) if address.torus_net(dims, axis, c).covers(nic.ip)]
            assert match == [switch.place[axis]]


def test_torus_addresses_by_hand() -> None:
    # 3 x 4: two bits each, dimension 0 in the higher ones, and a 1 behind: (2, 1) = 10 01 1.
    assert address.torus_ip([3, 4], [2, 1]) == IPv4Address("10.0.0.19")
    assert str(address.torus_net([3, 4], 0, 2)) == "10.0.0.16/255.0.0.24"
    assert str(address.torus_net([3, 4], 1, 1)) == "10.0.0.2/255.0.0.6"
    assert str(address.rail_net(3)) == "10.3.0.0/255.255.0.0"
    assert str(address.clos_net(17)) == "10.17.0.0/255.255.0.0"
    assert str(address.clos_net(1, 2)) == "10.1.2.0/255.255.255.0"
    assert address.one(IPv4Address("10.0.0.9")).covers(IPv4Address("10.0.0.9"))
    assert not address.one(IPv4Address("10.0.0.9")).covers(IPv4Address("10.0.0.11"))


def test_largest_addresses_stay_in_their_fields() -> None:
    assert address.rail_ip(253, 253) == IPv4Address("10.253.0.254")
    assert address.clos_ip(253, 253, 252) == IPv4Address("10.253.253.253")
    last = build("torus", {"dims": [2] * 10}).nics[-1]
    assert last.ip == IPv4Address("10.0.7.255")
    assert address.torus_place([2] * 10, last.ip) == (1,) * 10


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
        assert address.star_place(nic.ip) == nic.rank


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
        first = nic.rank // fabric.params.get("hosts_per_leaf", 10**6) // links * links
        name = "sw" if fabric.kind == "star" else "leaf"
        assert above == [f"{name}{first + k}" for k in range(links)]
        assert {fabric.cable_at[bridge.name, p].name for p in range(2, 2 + links)} <= fabric.to_hosts


def test_smartnics_of_their_own_bridge_have_no_second_one() -> None:
    with pytest.raises(TopologyError, match="have a bridge of their own"):
        with_complexes(build("ring", {"nodes": 3, "direct": True}))


# -- custom ---------------------------------------------------------------------------------------------------------


@given(networks())
def test_a_custom_network_has_the_nodes_and_cables_that_were_named(fabric: Fabric) -> None:
    nodes, cables = fabric.params["nodes"], fabric.params["cables"]
    assert [h.name for h in fabric.hosts] == [n for n, told in nodes.items() if told != "switch"]
    owner = {b.name: n.name for n in fabric.nics if (b := fabric.bridge_of(n.name)) is not None}
    built = {
        frozenset(owner.get(e.node, e.node) for e in (c.a, c.b)): c
        for c in fabric.cables
        if c.name not in fabric.inside
    }
    assert len(built) == len(cables)
    for told in cables:
        between, rate = (told["between"], 1e9) if isinstance(told, dict) else (told, None)
        cable = built[frozenset(between.split("-"))]
        uplink = cable.name not in fabric.to_hosts
        assert cable.rate_bps == rate
        assert cable.delay_ns == (7.0 if uplink and fabric.params["classes"] else None)
    for nic in fabric.nics:
        cabled = sum(nic.name in frozenset(b) for b in built)
        bridge = fabric.bridge_of(nic.name)
        assert (bridge.role if bridge else None) == (
            FORWARDS if nodes[nic.name]["forwards"] else OWN_PORTS if bridge else None
        )
        assert bridge is None or bridge.ports == cabled + 1


PAIR = {"a": "host", "b": "host", "s": "switch"}


@pytest.mark.parametrize(
    ("params", "key", "says"),
    [
        ({"nodes": PAIR}, "cables", "custom needs it"),
        ({"nodes": {}, "cables": []}, "nodes", "is a mapping"),
        ({"nodes": {"s": "switch"}, "cables": []}, "nodes", "there is no host"),
        ({"nodes": {**PAIR, "t": "router"}, "cables": []}, "nodes[t]", "'router' is no kind of node"),
        ({"nodes": {**PAIR, "nic0": "host"}, "cables": []}, "nodes[nic0]", "is no name for a node"),
        ({"nodes": {**PAIR, "a-b": "host"}, "cables": []}, "nodes[a-b]", "is no name for a node"),
        ({"nodes": {**PAIR, "eleven_char": "host"}, "cables": []}, "nodes[eleven_char]", "is no name for a node"),
        ({"nodes": {"s": {"kind": "switch", "forwards": True}, "a": "host"}, "cables": []}, "nodes[s]", "every switch"),
        ({"nodes": PAIR, "cables": ["a-s"]}, "nodes[b]", "no cable ends at b"),
        ({"nodes": {**PAIR, "t": "switch"}, "cables": ["a-s", "b-s"]}, "nodes[t]", "no cable ends at t"),
        ({"nodes": PAIR, "cables": ["a-s", "b-s", "c-s"]}, "cables[2]", "there is no node 'c' (nodes: a, b, s)"),
        ({"nodes": PAIR, "cables": ["a-s", "b-s", "s-a"]}, "cables[2]", "is cabled twice (it is already cables[0])"),
        ({"nodes": PAIR, "cables": ["a-s", "b-s", "s-s"]}, "cables[2]", "joins s to itself"),
        ({"nodes": PAIR, "cables": ["a-s", "bs"]}, "cables[1]", "'bs' is no cable"),
        ({"nodes": PAIR, "cables": ["a-s:1", "b-s:1"]}, "cables[1]", "has a cable (it is that of cables[0])"),
        ({"nodes": PAIR, "cables": ["a-s:1", "b-s:3"]}, "cables[1]", "port 3 of s is too far up (it has 2 cables"),
        ({"nodes": PAIR, "cables": ["a-s:0", "b-s"]}, "cables[0]", "'0' is no port"),
        ({"nodes": PAIR, "cables": ["a:1-s", "b-s"]}, "cables[0]", "ports of a host's NIC have no numbers"),
        ({"nodes": PAIR, "cables": ["a-s", {"between": "b-s", "class": "x"}]}, "cables[1]", "no class 'x' (classes"),
        ({"nodes": {**PAIR, "c": "host", "t": "switch"}, "cables": ["a-s", "b-s", "b-t", "c-t"]}, "a", "c cannot be"),
        ({"nodes": {**PAIR, "c": "host", "t": "switch"}, "cables": ["a-s", "b-s", "c-t"]}, "c", "with t it is not"),
        ({"nodes": dict.fromkeys("abc", "host"), "cables": ["a-b", "b-c"]}, "a", "c cannot be reached from a but"),
        ({"nodes": PAIR, "cables": ["a-s", "b-s"], "classes": {"x": {"rate_bps": 1e9}}}, "classes[x]", "no cable is"),
    ],
)  # fmt: skip
def test_a_network_that_cannot_be_says_which_node_or_cable(params: dict[str, Any], key: str, says: str) -> None:
    with pytest.raises(TopologyError) as caught:
        build("custom", params)
    assert (caught.value.key, says in str(caught.value)) == (key, True), str(caught.value)


def test_hosts_that_are_cabled_to_each_other_reach_each_other() -> None:
    build("custom", {"nodes": dict.fromkeys("abc", "host"), "cables": ["a-b", "b-c", "c-a"]})
    build(
        "custom",
        {"nodes": {"a": "host", "b": {"kind": "host", "forwards": True}, "c": "host"}, "cables": ["a-b", "b-c"]},
    )


def test_ports_are_where_they_were_asked_for() -> None:
    fabric = build("custom", {"nodes": PAIR | {"t": "switch"}, "cables": ["s:1-t", "a-s:3", "b-s"]})
    assert [fabric.cable_at["s", p].other("s").node for p in (1, 2, 3)] == ["t", "b", "a"]


# -- parameters -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "params", "key", "says"),
    [
        ("rng", {}, "rng", "did you mean ring? known: rail, clos, torus, ring, star, custom"),
        ("", {}, "", "known: rail"),
        ("rail", {"gpus": 2}, "servers", "rail needs it"),
        ("rail", {"servers": 4, "gpu": 2}, "gpu", "did you mean gpus? known: servers, gpus, spines"),
        ("rail", {"servers": 0, "gpus": 2}, "servers", "an integer from 1 to 254"),
        ("rail", {"servers": 10**6, "gpus": 2}, "servers", "1000000 is out of range"),
        ("rail", {"servers": 2, "gpus": 2, "spines": 0}, "spines", "nothing joins the 2 rails"),
        ("rail", {"servers": 254, "gpus": 1, "spines": 1}, "servers", "rail switch would need 255 ports"),
        ("rail", {"servers": 100, "gpus": 200}, "gpus", "20000 NICs are too many (at most 4096"),
        ("clos", {"leaves": 2, "spines": 0, "hosts_per_leaf": 1}, "spines", "an integer from 1"),
        ("clos", {"leaves": 2, "spines": 2, "hosts_per_leaf": 2, "pods": 2}, "cores", "nothing joins the 2 pods"),
        ("clos", {"leaves": 2, "spines": 2, "hosts_per_leaf": 2, "cores": 1}, "cores", "there is one pod"),
        ("clos", {"leaves": 2, "spines": 200, "hosts_per_leaf": 55}, "hosts_per_leaf", "leaf switch would need 255"),
        ("clos", {"leaves": 254, "spines": 1, "hosts_per_leaf": 253}, "leaves", "64262 NICs are too many"),
        ("clos", {"leaves": 30, "spines": 5, "hosts_per_leaf": 1, "pods": 40, "cores": 1}, "pods", "1401 switches"),
        ("clos", {"leaves": 2, "spines": 9, "hosts_per_leaf": 1, "pods": 30, "cores": 1}, "spines", "core switch"),
        ("clos", {"leaves": 250, "spines": 1, "hosts_per_leaf": 1, "pods": 2, "cores": 5}, "leaves", "spine switch"),
        ("torus", {"dims": [1]}, "dims[0]", "1 is out of range"),
        ("torus", {"dims": [4, 1]}, "dims[1]", "1 is out of range"),
        ("torus", {"dims": []}, "dims", "not a list of integers (for example [4, 4])"),
        ("torus", {"dims": 4}, "dims", "not a list of integers"),
        ("torus", {"dims": "44"}, "dims", "not a list of integers"),
        ("torus", {"dims": [4, "4"]}, "dims[1]", "'4' is not an integer"),
        ("torus", {"dims": [40, 40]}, "dims", "1600 switches are too many"),
        ("torus", {"dims": [100] * 50}, "dims", "too many"),
        ("torus", {"dims": [4], "direct": "yes"}, "direct", "'yes' is neither true nor false"),
        ("clos", {"leaves": 3, "spines": 1, "hosts_per_leaf": 1, "links": 2}, "links", "no groups of 2"),
        ("star", {"hosts": 8, "links": 17}, "links", "17 is out of range"),
        ("ring", {"nodes": 1}, "nodes", "an integer from 2"),
        ("ring", {"nodes": 2000}, "nodes", "an integer from 2 to 1024"),
        ("star", {"hosts": -1}, "hosts", "-1 is out of range"),
        ("star", {"hosts": True}, "hosts", "True is not an integer"),
        ("star", {"hosts": 4.0}, "hosts", "4.0 is not an integer"),
        ("star", {"hosts": "8"}, "hosts", "'8' is not an integer"),
        ("star", {"hosts": None}, "hosts", "there is nothing here"),
    ],
)
def test_what_cannot_be_is_refused_with_the_reason(kind: str, params: dict[str, Any], key: str, says: str) -> None:
    with pytest.raises(TopologyError) as caught:
        build(kind, params)
    assert caught.value.key == key
    assert says in str(caught.value)


def test_the_limits_themselves_can_be_built() -> None:
    assert len(build("rail", {"servers": 128, "gpus": 32, "spines": 4}).nics) == 4096
    assert len(build("ring", {"nodes": 1024}).switches) == 1024
    assert build("star", {"hosts": 254}).switches[0].ports == 254


def test_parameters_describe_themselves() -> None:
    for kind in KINDS.values():
        assert kind.summary
        for p in kind.parameters():
            assert p.doc
            assert p.required == (p.default is None)
            assert p.least <= p.most


def test_a_large_rail_builds_at_once() -> None:
    began = time.process_time()
    build("rail", {"servers": 64, "gpus": 8, "spines": 4})
    assert time.process_time() - began < 1


def test_importing_topologies_is_light_and_pure() -> None:
    code = "import sys, topologies, topologies.targets; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.split()
    assert not {"networkx", "numpy", "controllers", "workloads", "hardware", "results", "testbed"} & set(loaded)


# -- validation: break a good fabric, and it says what is wrong -------------------------------------------------------

GOOD = build("clos", {"leaves": 2, "spines": 1, "hosts_per_leaf": 2})
RAIL = build("rail", {"servers": 2, "gpus": 2})
a, b = GOOD.cables[0], GOOD.cables[1]
first, second = GOOD.nics[:2]


def cables(*changed: Cable) -> tuple[Cable, ...]:
    return changed + GOOD.cables[len(changed) :]


@pytest.mark.parametrize(
    ("broken", "says"),
    [
        (replace(GOOD, nics=GOOD.nics[::-1]), "h3: has rank 3"),
        (replace(GOOD, switches=GOOD.switches[::-1]), "has index"),
        (replace(GOOD, nics=(first, replace(second, name="h0"), *GOOD.nics[2:])), "h0: is the name of two nodes"),
        (replace(GOOD, hosts=(GOOD.hosts[0], replace(GOOD.hosts[1], name="leaf0"), *GOOD.hosts[2:])), "leaf0: is the"),
        (replace(GOOD, hosts=(*GOOD.hosts, GOOD.hosts[0])), "h0: is the name of two hosts"),
        (replace(GOOD, hosts=GOOD.hosts[1:]), "h0: is not among the NICs of its host h0"),
        (replace(RAIL, hosts=(RAIL.hosts[0], replace(RAIL.hosts[1], nics=RAIL.hosts[0].nics))), "is a NIC of two"),
        (replace(GOOD, hosts=(*GOOD.hosts, replace(GOOD.hosts[0], name="h9", nics=("h9",)))), "h9: is no NIC"),
        (replace(RAIL, scale_up=(("h0.0", "h7.7"),)), "h7.7: is no NIC"),
        (replace(RAIL, scale_up=(("h0.0", "h0.1"), ("h0.0", "h1.0"))), "h0.0: is in two scale-up domains"),
        (replace(GOOD, nics=(first, replace(second, ip=first.ip), *GOOD.nics[2:])), "10.0.0.1: is the address of two"),
        (replace(GOOD, nics=(replace(first, ip=IPv4Address("9.0.0.1")), *GOOD.nics[1:])), "lie in 10.0.0.0/8"),
        (replace(GOOD, nics=(replace(first, mac="02:00:00:00:00:01"), *GOOD.nics[1:])), "has MAC"),
        (replace(GOOD, cables=cables(Cable(a.a, b.a), b)), "has no switch at either end"),
        (replace(GOOD, cables=cables(Cable(a.a, End("leaf0", 9)))), "ends in port 9 of leaf0"),
        (replace(GOOD, cables=cables(Cable(a.a, End("leaf9", 1)))), "h0-leaf9: has no switch"),
        (replace(GOOD, cables=cables(Cable(a.a, b.b))), "leaf0:2: has two cables in one port"),
        (replace(GOOD, cables=(*GOOD.cables, Cable(a.b, a.a))), "h0-leaf0: is cabled twice"),
        (replace(GOOD, cables=GOOD.cables[1:]), "no cable is plugged in"),
        (
            replace(GOOD, cables=cables(Cable(End("leaf0", 1), End("leaf0", 2)))),
            "leaf0-leaf0: joins a switch to itself",
        ),
        (replace(GOOD, hosts=(), nics=(), switches=(), cables=()), "has no NIC"),
    ],
)
def test_validation_names_what_is_wrong(broken: Fabric, says: str) -> None:
    with pytest.raises(TopologyError) as caught:
        validate(broken)
    assert says in str(caught.value)


def test_what_is_built_is_validated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(KINDS["star"], "build", lambda self: replace(GOOD, cables=GOOD.cables[1:]))
    with pytest.raises(TopologyError, match="no cable is plugged in"):
        build("star", {"hosts": 2})


def test_validation_finds_a_fabric_in_two_parts() -> None:
    # Two stars side by side, every port cabled.
    left = build("star", {"hosts": 2})
    nics = tuple(
        replace(n, name=f"x{n.rank}", host=f"x{n.rank}", rank=n.rank + 2, ip=n.ip + 8, mac=address.mac(n.ip + 8))
        for n in left.nics
    )
    hosts = tuple(replace(h, name=f"x{h.name[1:]}", nics=(f"x{h.name[1:]}",)) for h in left.hosts)
    wires = tuple(Cable(End(f"x{i}", 1), End("sw1", i + 1)) for i in range(2))
    both = replace(
        left,
        hosts=left.hosts + hosts,
        nics=left.nics + nics,
        switches=(*left.switches, replace(left.switches[0], name="sw1", index=1)),
        cables=left.cables + wires,
    )
    with pytest.raises(TopologyError, match="not connected to the rest: 2 parts"):
        validate(both)


def test_the_package_offers_what_other_layers_use() -> None:
    assert topologies.build is build
    assert set(KINDS) == {"rail", "clos", "torus", "ring", "star", "custom"}
