"""Sets of ports of which switches take one: those that ECMP hashes over, as often as each weighs."""

from __future__ import annotations

from dataclasses import replace
from ipaddress import IPv4Network

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controllers.flows import Choose, Flow, Hash, Replicate, groups, replications, reweighted, to_network
from controllers.flows.bridge import Bridge
from controllers.flows.faults import FaultError, apply
from controllers.routing.routes import Router
from controllers.routing.weights import MOST_COPIES, whole
from testbed.base.errors import InputError
from testbed.experiment import loads
from tests.parts.flow_tables import outputs
from topologies import Fabric, build
from topologies.graph.fabric import EMBEDDED

FAST, SLOW = 400e9, 40e9
CLOS = {"leaves": 3, "spines": 4, "hosts_per_leaf": 2}


def chosen(flows: list[Flow], fabric: Fabric, rank: int) -> dict[int, int]:
    """The ports toward a rank, with how often a frame is copied for each."""
    for flow in flows:
        destination = dict(flow.match).get("ipv4_dst")
        if isinstance(destination, tuple) and fabric.nics[rank].ip in IPv4Network("/".join(destination)):
            for action in flow.actions:
                if isinstance(action, Choose):
                    return {port: action.ports.count(port) for port in action.ports}
    return {}


def with_rates(fabric: Fabric, rates: dict[str, float]) -> Fabric:
    cables = tuple(replace(cable, rate_bps=rates.get(cable.name)) for cable in fabric.cables)
    return replace(fabric, cables=cables)


def toward(fabric: Fabric, switch: str, rank: int, down: frozenset[tuple[str, int]] = frozenset()) -> dict[str, int]:
    """The weights of a switch's neighbours, with capacity weights."""
    flows = Router(fabric, "adaptive", cable_bps=FAST).flows(down)[switch]
    return {fabric.cable_at[switch, port].other(switch).node: n for port, n in chosen(flows, fabric, rank).items()}


kinds = st.sampled_from([
    ("clos", CLOS), ("clos", {"leaves": 2, "spines": 3, "hosts_per_leaf": 1, "pods": 2, "cores": 2}),
    ("rail", {"servers": 3, "gpus": 2, "spines": 2}), ("clos", {**CLOS, "leaves": 2, "links": 2}),
    ("star", {"hosts": 3}),
])  # fmt: skip


@given(kinds, st.data())
@settings(deadline=None, max_examples=15)
def test_a_set_is_what_ecmp_hashes_over(kind: tuple[str, dict[str, int]], data: st.DataObject) -> None:
    fabric = build(*kind)
    trunks = [c for c in fabric.cables if {c.a.node, c.b.node} <= fabric.switch_by_name.keys()]
    failed = data.draw(st.lists(st.sampled_from(trunks), unique=True, max_size=2)) if trunks else []
    down = frozenset((c.a.node, c.a.port) for c in failed)
    hashed, sets = Router(fabric).flows(down), Router(fabric, "adaptive").flows(down)
    for switch in fabric.switches:
        for nic in fabric.nics:
            equal = outputs(hashed[switch.name], nic.ip)
            assert outputs(sets[switch.name], nic.ip) == equal
            taken = chosen(sets[switch.name], fabric, nic.rank)
            assert taken == (dict.fromkeys(equal, 1) if len(equal) > 1 and switch.role not in EMBEDDED else {})


@given(st.lists(st.lists(st.sampled_from([40e9, 100e9, 200e9, 400e9]), min_size=4, max_size=4), min_size=3, max_size=3))
@settings(deadline=None, max_examples=15)
def test_between_leaf_and_spine_a_port_weighs_as_the_slower_of_the_two_cables(rates: list[list[float]]) -> None:
    names = {f"leaf{i}-spine{k}": rate for i, row in enumerate(rates) for k, rate in enumerate(row)}
    fabric = with_rates(build("clos", CLOS), names)
    least = {f"spine{k}": min(rates[0][k], rates[2][k]) for k in range(4)}
    weights = toward(fabric, "leaf0", 4)
    if weights:
        assert sum(weights.values()) <= MOST_COPIES
        assert all(least[name] * sum(weights.values()) == pytest.approx(n * sum(least.values()), rel=0.2)
                   for name, n in weights.items())  # fmt: skip


def test_one_slow_uplink_weighs_a_tenth_for_those_who_would_take_it() -> None:
    fabric = with_rates(build("clos", CLOS), {"leaf0-spine1": SLOW})
    tenth = {"spine0": 10, "spine1": 1, "spine2": 10, "spine3": 10}
    assert toward(fabric, "leaf0", 2) == toward(fabric, "leaf0", 4) == tenth
    assert toward(fabric, "leaf1", 0) == toward(fabric, "leaf2", 1) == tenth
    assert toward(fabric, "leaf1", 4) == dict.fromkeys(tenth, 1)


def test_weights_follow_what_is_said_of_rates() -> None:
    """As if the fabric had been so from the beginning; and back, when the cable is as it was."""
    fabric = build("clos", CLOS)
    slow = with_rates(fabric, {"leaf2-spine1": SLOW})
    router, built = Router(fabric, "adaptive", cable_bps=FAST), Router(slow, "adaptive", cable_bps=FAST)
    healthy = router.flows()
    router.set_rate(fabric.cable_by_name["leaf2-spine1"], SLOW)
    assert router.flows() == built.flows() != healthy
    router.set_rate(fabric.cable_by_name["leaf2-spine1"], FAST)
    assert router.flows() == healthy


def test_a_switch_with_fewer_ways_on_weighs_less() -> None:
    """Of two spines of a pod one has lost one of its two cores: it gets half (WCMP's weights)."""
    fabric = build("clos", {"leaves": 2, "spines": 2, "hosts_per_leaf": 1, "pods": 2, "cores": 2})
    spines = {
        c.other("leaf0").node for c in fabric.cables if "leaf0" in (c.a.node, c.b.node)
    } & fabric.switch_by_name.keys()
    one, other = sorted(spines)
    cores = [c for c in fabric.cables if one in (c.a.node, c.b.node) and "core" in c.other(one).node]
    assert len(cores) == 2
    down = frozenset({(cores[0].end(one).node, cores[0].end(one).port)})
    assert toward(fabric, "leaf0", 2, down) == {one: 1, other: 2}
    assert toward(fabric, "leaf0", 1, down) == {one: 1, other: 1}


@given(st.lists(st.sampled_from([10e9, 40e9, 100e9, 200e9, 400e9]), min_size=2, max_size=64))
@settings(deadline=None)
def test_whole_weights_overload_no_port_by_much(rates: list[float]) -> None:
    weights = whole(rates)
    total, load = sum(weights), sum(rates)
    assert 0 < total <= MOST_COPIES
    assert max(w / rate for w, rate in zip(weights, rates, strict=True)) * load / total < 1.4
    assert whole([FAST] * len(rates)) == (1,) * len(rates)
    assert whole([400, 300, 100]) == (4, 3, 1) and whole([FAST, SLOW]) == (10, 1)


def test_sets_and_copies_are_told_apart_by_their_numbers() -> None:
    network = IPv4Network("10.0.0.0/24")
    flows = [to_network(network, (1, 2), choose=True), replace(to_network(network, (1,)), actions=(Replicate((1, 2)),))]
    one, other = groups(flows)
    assert {one.group >> 31, other.group >> 31} == {0, 1} and replications(flows) == {Replicate((1, 2))}
    assert Choose((1, 2)).group < 0xFFFFFF00 != Choose((1, 2, 2)).group  # OFPG_MAX
    bridge = Bridge("s")
    bridge.wanted = frozenset(flows)
    assert {type(group) for group in bridge.found([]).add_groups} == {Choose, Replicate}


def test_an_application_weighs_sets_as_it_weighs_hashes() -> None:
    flow = to_network(IPv4Network("10.0.0.0/24"), (1, 2, 2, 3), choose=True)
    (heavier,) = reweighted([flow], {1: 3, 2: 0, 3: 1}.__getitem__)
    assert heavier.actions == (Choose((1, 1, 1, 3)),)
    assert all(
        not isinstance(a, Hash) for f in Router(build("clos", CLOS), "adaptive").flows()["leaf0"] for a in f.actions
    )


def test_a_faulty_switch_hashes_or_weighs_wrongly_and_no_other_changes() -> None:
    fabric = build("clos", CLOS)
    hashed, right = Router(fabric).flows(), Router(fabric, "adaptive").flows()
    off = apply(fabric, right, [({"forwarding": "hashed", "switch": "leaf0"}, frozenset())])
    assert set(off["leaf0"]) == set(hashed["leaf0"]) and off["leaf1"] == right["leaf1"]
    spec = {"forwarding": "group_weights", "switch": "leaf0", "port": 4, "weight": 3}
    wrong = apply(fabric, right, [(spec, frozenset())])
    assert chosen(wrong["leaf0"], fabric, 2) == {3: 1, 4: 3, 5: 1, 6: 1}
    for fault in (spec, {"forwarding": "hashed", "switch": "leaf0"}):  # its table was written anew
        assert apply(fabric, right, [(fault, frozenset({"leaf0"}))]) == right
    with pytest.raises(FaultError, match="leaf0 has no set of ports with port 1"):
        apply(fabric, right, [({**spec, "port": 1}, frozenset())])


def test_faults_of_hashes_and_of_choices_are_for_their_switches() -> None:
    head = "name: t\nfabric: {topology: {clos: {leaves: 2, spines: 2, hosts_per_leaf: 2}}}\n"
    wrong = {"stuck_choice, on: 'switch:leaf0'": "ecmp", "dead_ecmp_member, on: 'port:leaf0:3'": "adaptive"}
    for fault, routing in wrong.items():
        with pytest.raises(InputError, match="is for switches (that|whose)"):
            loads(f"{head}control: {{routing: {routing}}}\ninject: [{{fault: {fault}}}]\n")
