"""An operator at routes, flow tables, the controller, accelerators: what Open vSwitch then holds, what flows do."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from testbed.base.errors import UserError
from testbed.experiment import loads
from testbed.fabric.lab import Lab
from testbed.faults import Injection
from testbed.inject.live import put_in
from testbed.operate.carry_out import config, rollback
from testbed.operate.steps.site import Site
from testbed.operate.steps.steps import flows_of
from tests.parts.faulty_fabric import FaultyFabric, Outcome, faulty_fabric
from tests.parts.operating import back, do

ACROSS = [(source, to, 65536, 0.0) for source in (0, 1, 2) for to in (3, 4, 5)]
Tables = dict[str, list[str]]


@pytest.fixture(scope="module")
def fabric() -> Iterator[FaultyFabric]:
    with faulty_fabric(spines=2) as f:
        yield f


@pytest.fixture(autouse=True)
def right(fabric: FaultyFabric) -> Iterator[Tables]:
    """Every test leaves the tables that it found, and nothing injected."""
    before = tables(fabric)
    yield before
    left = [fault["fault"] for fault in fabric.fabricd.request("faults")["faults"]]
    fabric.heal(left)
    assert (left, tables(fabric)) == ([], before)


def refused(f: FaultyFabric, line: str) -> str:
    with pytest.raises(UserError) as error:
        do(f, line)
    return f"{error.value.what} ({error.value.hint})"


def tables(f: FaultyFabric) -> Tables:
    """What Open vSwitch really holds."""
    site = Site.of(f.lab)
    return {switch.name: sorted(flows_of(site, switch.name)) for switch in f.lab.fabric.switches}


def through(outcome: Outcome, port: str) -> int:
    return outcome.ports[port]["tx_prio3_packets"] + outcome.ports[port]["rx_prio3_packets"]


def test_a_drained_spine_carries_nothing_and_nothing_is_lost(fabric: FaultyFabric, right: Tables) -> None:
    name, now = "traffic", fabric.now_ns()
    fabric.fabricd.request("inject", fault=name, primitive="traffic", flows=[[*f[:2], 400_000, 1000] for f in ACROSS])
    spec = {"operate": "drain", "place": "spine0", "ports": [["spine0", 1], ["spine0", 2]]}
    drain = {"primitive": "act", "to": "controller", "operator": True, "spec": spec}
    fabric.fabricd.request("inject", fault="under", at_ns=now + 20_000, **drain)  # while frames are under way
    fabric.rest()
    assert None not in [r[4] for r in fabric.fabricd.request("traffic_results", fault=name)["flows"]]
    fabric.heal([name, "under"])
    do(fabric, "route drain spine0")
    outcome = fabric.measure(ACROSS)
    assert None not in outcome.times and not outcome.drops
    assert through(outcome, "spine0:1") == 0 < through(outcome, "spine1:1")
    assert tables(fabric)["spine0"] == right["spine0"], "what is on its way there comes through"
    assert "was drained already" in do(fabric, "route drain spine0").notes[0]
    do(fabric, "interface shutdown leaf0:4")  # the port goes after the routes: nothing is lost
    assert not fabric.measure(ACROSS).drops
    do(fabric, "interface startup leaf0:4")
    do(fabric, "route undrain spine0")
    assert through(fabric.measure(ACROSS), "spine0:1") > 0
    back(fabric)
    assert through(fabric.measure(ACROSS), "spine0:1") == 0
    back(fabric, "all")


def test_a_drained_port_and_one_that_was_not(fabric: FaultyFabric) -> None:
    do(fabric, "route drain leaf0:4")
    outcome = fabric.measure(ACROSS)
    assert through(outcome, "leaf0:4") == 0 < through(outcome, "leaf0:5")
    assert "leaf0:5 was not drained" in do(fabric, "route undrain leaf0:5").notes[0]
    do(fabric, "route undrain leaf0:4")
    assert through(fabric.measure(ACROSS), "leaf0:4") > 0


@pytest.mark.parametrize("part", ["leaf0", "leaf0:1"])
def test_the_only_way_is_not_drained(part: str, fabric: FaultyFabric, right: Tables) -> None:
    assert "would have no way to the rest" in refused(fabric, f"route drain {part}")
    assert tables(fabric) == right


def test_of_two_ways_one_is_drained_and_carries_again_when_the_other_is_cut(fabric: FaultyFabric) -> None:
    do(fabric, "route drain spine0")
    assert "ranks 3, 4, 5 would have no way" in refused(fabric, "route drain spine1")
    cut = fabric.inject({"fault": "cable_down", "on": "cable:leaf0-spine1"})
    outcome = fabric.measure(ACROSS)
    assert None not in outcome.times and through(outcome, "spine0:1") > 0
    fabric.heal(cut)
    assert through(fabric.measure(ACROSS), "spine0:1") == 0
    back(fabric, "all")


def test_a_loop_is_gone_when_both_tables_were_written_anew(fabric: FaultyFabric, right: Tables) -> None:
    fabric.inject({"fault": "loop", "on": "switch:leaf0", "to": 3, "neighbour": "spine0"})
    both = tables(fabric)
    do(fabric, "flow resync leaf0")
    one = tables(fabric)
    assert one["leaf0"] == right["leaf0"] and one["spine0"] == both["spine0"] != right["spine0"]
    do(fabric, "flow resync spine0")
    assert tables(fabric) == right
    left = [f["fault"] for f in fabric.fabricd.request("faults")["faults"]]
    assert all(name.startswith("config") for name in left)
    fabric.heal(left)


def test_a_dead_member_is_mended_at_its_switch(fabric: FaultyFabric, right: Tables) -> None:
    fabric.inject({"fault": "dead_ecmp_member", "on": "port:leaf0:4"})
    do(fabric, "flow resync spine0")
    assert tables(fabric) != right
    do(fabric, "flow resync leaf0")
    assert tables(fabric) == right


def test_seeds_undo_a_polarised_hash(fabric: FaultyFabric, right: Tables) -> None:
    ids = fabric.inject({"fault": "polarised_hash", "on": "all"})
    assert tables(fabric) != right
    for switch in fabric.lab.fabric.switches:
        do(fabric, f"hash seed {switch.name} {switch.dpid}")
    assert tables(fabric) == right
    back(fabric, "all")
    fabric.heal(ids)
    do(fabric, "hash seed leaf0 7")
    assert tables(fabric) != right
    back(fabric)


def test_flows_come_and_go_as_ovs_ofctl_has_them(fabric: FaultyFabric, right: Tables) -> None:
    ip = fabric.lab.fabric.nics[3].ip
    do(fabric, f"flow add leaf0 priority=200,ip,nw_dst={ip} actions=drop")
    outcome = fabric.measure([(0, 3, 4096, 0.0), (0, 4, 4096, 0.0)])
    assert outcome.times[0] is None and outcome.times[1] is not None
    assert outcome.reasons["forwarding"] > 0
    assert not do(fabric, "flow del leaf0 table=0,arp").notes
    assert tables(fabric)["leaf0"] != right["leaf0"]
    back(fabric, "all")
    assert tables(fabric) == right
    assert "no flow matches" in do(fabric, "flow del leaf0 tcp,tp_dst=1").notes
    for text, says in {
        "priority=200,ipp actions=drop": "ipp",
        "nw_dst=10.0.0.9": "must specify an action",
        "ip actions=jump": "jump",
        "tp_dst=4791 actions=drop": "of 'tp_dst=4791' Open vSwitch would take 'nothing' alone",
        "": "TEXT is missing",
    }.items():
        assert says in refused(fabric, f"flow add leaf0 {text}"), text
    assert tables(fabric) == right


def test_a_resync_deletes_what_others_have_put_in_and_restores_what_they_deleted(
    fabric: FaultyFabric, right: Tables
) -> None:
    do(fabric, "flow add leaf0 priority=200,ip,nw_dst=10.9.9.9 actions=drop")
    do(fabric, "flow del leaf0 table=0")
    assert len(tables(fabric)["leaf0"]) < len(right["leaf0"])
    do(fabric, "flow resync leaf1")
    assert tables(fabric)["leaf0"] != right["leaf0"]
    do(fabric, "flow resync leaf0")
    assert tables(fabric) == right


@pytest.mark.parametrize("fault", ["controller_dead", "controller_hung"])
def test_a_restart_brings_the_controller_back(fault: str, fabric: FaultyFabric, right: Tables) -> None:
    fabric.inject({"fault": fault, "on": "controller"})
    cut = fabric.inject({"fault": "cable_down", "on": "cable:leaf0-spine0"})
    if fault == "controller_dead":
        assert "no controller is connected" in refused(fabric, "route drain spine0")
    assert tables(fabric) == right
    do(fabric, "controller restart")
    assert tables(fabric) != right
    assert None not in fabric.measure(ACROSS).times
    fabric.heal(cut)
    assert tables(fabric) == right


def test_a_restart_of_a_good_controller_delays_what_it_would_do(fabric: FaultyFabric, right: Tables) -> None:
    do(fabric, "route drain leaf0:4")
    drained = tables(fabric)
    pid = fabric.lab.controller.pid
    slow = fabric.inject({"fault": "slow_controller", "on": "controller", "reaction": "7ms"})
    do(fabric, "controller restart")
    assert slow[0] not in [f["fault"] for f in fabric.fabricd.request("faults")["faults"]]
    assert fabric.lab.controller.pid == pid  # it was slow, and is no more
    do(fabric, "controller restart")
    assert fabric.lab.controller.pid != pid
    assert tables(fabric) == drained, "what operators have asked for stays"
    back(fabric, "all")
    fabric.measure(ACROSS)
    assert tables(fabric) == right


def test_an_accelerator_that_is_switched_on_answers() -> None:
    clos = "fabric: {topology: {clos: {leaves: 2, spines: 1, hosts_per_leaf: 2}}, switch: {accelerator: {}}}"
    with Lab.up(loads(f"name: acc\n{clos}\n")) as lab:
        site = Site.of(lab)

        def down() -> bool:
            return bool(lab.fabricd.request("parameters")["switches"]["leaf0"]["accelerator_down"])

        lab.fabricd.request("inject", fault="f1", primitive="params", switch="leaf0", values={"accelerator_down": True})
        assert down()
        config(site, ["accelerator", "on", "leaf0"])
        assert not down()
        rollback(site, None)
        assert down()
        lab.fabricd.request("heal", fault="f1")
        config(site, ["accelerator", "off", "leaf0"])
        assert down()


def test_slots_that_nobody_owns_are_reclaimed_where_they_are() -> None:
    clos = "fabric: {topology: {clos: {leaves: 2, spines: 1, hosts_per_leaf: 2}}, switch: {accelerator: {}}}"
    with Lab.up(loads(f"name: acc\n{clos}\n")) as lab:

        def free() -> dict[str, int]:
            return {a["switch"]: a["slots_free"] for a in lab.fabricd.request("counters")["accelerators"]}

        put_in(lab, Injection.of({"fault": "slots_leaked", "on": "switch:leaf0", "slots": 1000}))
        assert free() == {"leaf0": 24, "leaf1": 1024, "spine0": 1024}
        config(Site.of(lab), ["accelerator", "reclaim", "leaf1"])
        assert free()["leaf0"] == 24
        config(Site.of(lab), ["accelerator", "reclaim", "leaf0"])
        assert set(free().values()) == {1024}


def test_a_chip_that_begins_anew_chooses_again(fabric: FaultyFabric) -> None:
    assert "does not choose" in refused(fabric, "adaptive restart leaf0")
    clos = "fabric: {topology: {clos: {leaves: 2, spines: 2, hosts_per_leaf: 2}}}"
    with Lab.up(loads(f"name: adaptive\n{clos}\ncontrol: {{routing: adaptive}}\n")) as lab:

        def chip() -> dict[str, object]:
            return dict(lab.fabricd.request("parameters")["switches"]["leaf0"].get("adaptive") or {})

        def stale() -> int:
            ports = lab.fabricd.request("parameters")["ports"]
            return sum(p.get("stale_ns") == 50_000 for p in ports.values())

        right = chip()
        for on in ("switch:leaf0", "port:leaf0:3"):
            put_in(lab, Injection.of({"fault": "stale_quality", "on": on, "age": "50us"}))
        assert stale() == 4
        put_in(lab, Injection.of({"fault": "stuck_choice", "on": "switch:leaf0"}))
        assert chip() == {}
        config(Site.of(lab), ["adaptive", "restart", "leaf1"])
        assert chip() == {} and stale() == 4
        config(Site.of(lab), ["adaptive", "restart", "leaf0"])
        assert chip() == right and stale() == 0


def test_a_tenant_is_policed_and_nobody_else(fabric: FaultyFabric) -> None:
    free = fabric.measure(ACROSS)
    assert not free.drops
    do(fabric, "tenant limit 20Gbps 0,1")
    outcome = fabric.measure(ACROSS)
    polices = {(node, port) for node, port, _ in outcome.drops}
    assert polices == {("leaf0", 1), ("leaf0", 2)}
    slowed = {flow[0] for flow, before, now in zip(ACROSS, free.times, outcome.times, strict=True)
              if now is None or (before and now > 2 * before)}  # fmt: skip
    assert slowed >= {0, 1}
    back(fabric)
    assert not fabric.measure(ACROSS).drops
    do(fabric, "tenant limit 20Gbps 0,1 -p 5")
    assert not fabric.measure(ACROSS).drops, "another class"
    back(fabric)
    assert "there is no rank 99" in refused(fabric, "tenant limit 20Gbps 0,99")
