"""What a topology is asked for: custom networks, parameters, their limits, and what is said of what cannot be."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given

from tests.parts.custom_networks import networks
from topologies import KINDS, Fabric, TopologyError, build
from topologies.graph.fabric import FORWARDS, OWN_PORTS

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
        ("rng", {}, "rng", "did you mean ring? known: clos"),
        ("", {}, "", "known: clos"),
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


def test_importing_topologies_is_light_and_pure() -> None:
    code = "import sys, topologies, topologies.graph.targets, topologies.drawing; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.split()
    assert not {"networkx", "numpy", "controllers", "workloads", "hardware", "results", "testbed"} & set(loaded)
