"""Jobs whose part of the network dies: trees follow the routes, and ranks ask for a new group after a failure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from ipaddress import IPv4Address
from typing import Any

import pytest

from controllers.flows import Flow, Output, Replicate
from controllers.offload.jobs import BELOW, GROUPS, JobRefused, place
from controllers.offload.trees import Trees
from controllers.routing.ports import DownPorts
from controllers.routing.routes import Router
from controllers.wanted import Wanted
from topologies import build
from topologies.graph.fabric import Fabric
from workloads.offloads.offloaded import Renewal
from workloads.verbs import Group, wire
from workloads.verbs.wire import Record


class NoApps:
    """As if there were no applications."""

    def avoid(self, down: Any) -> Any:
        return down

    def tables(self, tables: Any, around: Any) -> Any:
        return tables


def clos(spines: int = 2) -> Fabric:
    fabric = build("clos", {"leaves": 2, "spines": spines, "hosts_per_leaf": 2})
    return replace(fabric, switches=tuple(replace(switch, accelerator=True) for switch in fabric.switches))


def with_accelerators(fabric: Fabric) -> Fabric:
    return replace(fabric, switches=tuple(replace(switch, accelerator=True) for switch in fabric.switches))


def cut_cable(w: Wanted, ports: DownPorts, fabric: Fabric, name: str, up: bool = False) -> None:
    cable = fabric.cable(name)
    for end in (cable.a, cable.b):
        ports.fabricd_says((end.node, end.port), up)
    assert w.reroute()


def job(fabric: Fabric, kind: str, number: int = 1, dead: Iterable[str] = ()) -> dict[str, Any]:
    pool = {"slots": 64, "slots_free": 64, "shared_slots": 32, "elements": 256, "fan_in": 64}
    pools = {switch.name: {**pool, "down": switch.name in dead} for switch in fabric.switches}
    args = [4096, 0] if kind == "multicast" else [16, 256, 10**7]
    return {"job": number, "kind": kind, "ranks": [0, 1, 2, 3], "args": args, "accelerators": pools}


def wanted(fabric: Fabric) -> tuple[Wanted, DownPorts]:
    ports = DownPorts()
    apps: Any = NoApps()
    return Wanted(fabric, Router(fabric), ports, apps), ports


def cut(fabric: Fabric, ports: DownPorts, switch: str, up: bool = False) -> None:
    for cable in fabric.cables:
        for end in (cable.a, cable.b):
            if switch in (cable.a.node, cable.b.node) and (end.node, end.port) in fabric.cable_at:
                ports.fabricd_says((end.node, end.port), up)


def copying(flows: dict[str, list[Flow]], number: int) -> set[str]:
    """Switches that copy what goes to a job's group."""
    group = ("ipv4_dst", (str(IPv4Address(GROUPS + number)), "255.255.255.255"))
    return {s for s, own in flows.items() for f in own if group in f.match and isinstance(f.actions[0], Replicate)}


@pytest.mark.parametrize("kind", ["multicast", "best_effort"])
def test_what_only_flows_lead_follows_them_there_and_back(kind: str) -> None:
    fabric = clos()
    w, ports = wanted(fabric)
    w.place(job(fabric, kind))
    (spine,) = copying(w.tables(), 1) - {"leaf0", "leaf1"}
    other = "spine1" if spine == "spine0" else "spine0"
    cut(fabric, ports, spine)
    assert w.reroute() and not w.moved
    assert copying(w.tables(), 1) == {"leaf0", "leaf1", other}
    cut(fabric, ports, spine, up=True)
    assert w.reroute() and not w.moved
    assert copying(w.tables(), 1) - {"leaf0", "leaf1"}, "one spine or the other"


def test_whose_root_is_gone_has_to_ask_anew_and_is_told_why() -> None:
    fabric = clos()
    w, ports = wanted(fabric)
    root = w.place(job(fabric, "aggregate")).answer["root"]
    cut(fabric, ports, root)
    assert w.reroute()
    assert w.moved == {1: f"its tree cannot stay: leaf0-{root} is down"}
    w.moved.clear()
    w.close(1)
    again = w.place(job(fabric, "aggregate", 2)).answer["root"]
    assert {root, again} == {"spine0", "spine1"}


def test_nobody_is_disturbed_because_something_is_back() -> None:
    """Without a cable of its ring the job has a longer tree; with it there would be another."""
    fabric = build("ring", {"nodes": 4})
    fabric = replace(fabric, switches=tuple(replace(switch, accelerator=True) for switch in fabric.switches))
    w, ports = wanted(fabric)
    cable = next(cable for cable in fabric.cables if cable.name == "sw0-sw1")
    for up in (False, True):
        for end in (cable.a, cable.b):
            ports.fabricd_says((end.node, end.port), up)
        assert w.reroute()
        if not up:
            longer = w.place(job(fabric, "aggregate"))
    assert not w.moved
    w.close(1)
    assert w.place(job(fabric, "aggregate")).programs != longer.programs


def test_a_job_beside_what_died_stays_where_it_is() -> None:
    """Job 2 of four spines has the third; without the first, the third of those that are left would be another."""
    fabric = clos(4)
    w, ports = wanted(fabric)
    assert w.place(job(fabric, "aggregate", 2)).answer["root"] == "spine2"
    cut(fabric, ports, "spine0")
    assert w.reroute() and not w.moved


def test_trees_of_the_same_ranks_and_of_all_jobs_spread_over_the_roots() -> None:
    """Numbers that are gone, and jobs of other ranks, do not make two trees share a root while one is free."""
    fabric = clos(4)
    w, _ = wanted(fabric)

    def root(number: int, ranks: list[int]) -> str:
        return str(w.place({**job(fabric, "aggregate", number), "ranks": ranks}).answer["root"])

    assert [root(number, [0, 1, 2, 3]) for number in (1, 2, 5, 4)] == ["spine1", "spine2", "spine3", "spine0"]
    w.close(2)
    assert root(3, [0, 2]) == "spine2", "the only one without a tree"
    assert root(7, [0, 2]) == "spine3", "not with the other tree of these ranks, and then in turn"
    assert root(11, [0, 2]) == "spine0"
    assert root(12, [0, 1, 2, 3]) == "spine2", "where the others of these ranks are not"


def test_trees_that_share_a_root_part_when_another_is_back() -> None:
    """Only as many as there are roots to be had, and none whose ranks have no other tree there."""
    fabric = clos(4)
    w, ports = wanted(fabric)
    for spine in ("spine0", "spine2"):
        cut(fabric, ports, spine)
    w.reroute()
    roots = [w.place(job(fabric, "aggregate", number)).answer["root"] for number in range(1, 6)]
    assert sorted(roots) == ["spine1"] * 2 + ["spine3"] * 3 or sorted(roots) == ["spine1"] * 3 + ["spine3"] * 2
    w.place({**job(fabric, "aggregate", 6), "ranks": [0, 2]})
    cut(fabric, ports, "spine0", up=True)
    assert w.reroute() and w.moved == {1: f"another root than {roots[0]}, where it is not alone, is back"}
    w.moved.clear()
    w.close(1)
    assert w.place(job(fabric, "aggregate", 7)).answer["root"] == "spine0"
    cut(fabric, ports, "spine2", up=True)
    assert w.reroute() and len(w.moved) == 1
    w.close(*w.moved)
    w.moved.clear()
    assert w.place(job(fabric, "aggregate", 8)).answer["root"] == "spine2"


def test_a_new_controller_places_jobs_where_they_are() -> None:
    fabric = clos(4)
    before, after = wanted(fabric)[0], wanted(fabric)[0]
    for number in (1, 2, 3):
        before.place(job(fabric, "aggregate", number))
    before.close(1)
    for number in (5, 9):
        before.place(job(fabric, "aggregate", number))
    granted = {number: placement.answer for number, placement in before._jobs.items()}
    for number, answer in granted.items():
        told = job(fabric, "aggregate", number)
        for pool in told["accelerators"].values():
            pool["slots_free"] = 0  # they are the jobs'
        after.place({**told, "granted": answer})
    assert {number: placement.answer for number, placement in after._jobs.items()} == granted
    assert after.tables() == before.tables()


def test_of_several_trees_of_a_multicast_only_the_one_that_has_to_moves_and_comes_back() -> None:
    fabric = clos(4)
    w, ports = wanted(fabric)
    placement = w.place({**job(fabric, "multicast"), "args": [4096, 3]})
    assert placement.answer["roots"] == ["spine1", "spine2", "spine3"]
    spines = {"spine0", "spine1", "spine2", "spine3"}
    for up, roots in ((False, ["spine1", "spine0", "spine3"]), (True, ["spine1", "spine2", "spine3"])):
        cut(fabric, ports, "spine2", up)
        assert w.reroute() and not w.moved
        copied = [copying(w.tables(), 1 - tree * BELOW) & spines for tree in range(3)]
        assert copied == [{root} for root in roots]


def test_a_job_moves_for_a_cable_of_its_own_tree_alone() -> None:
    """It keeps its tree when a cable is back that makes another one better, and when one dies that neither has."""
    fabric = with_accelerators(build("torus", {"dims": [2, 3]}))
    w, ports = wanted(fabric)
    cut_cable(w, ports, fabric, "sw1-2-sw1-0")
    tree = set(w.place({**job(fabric, "aggregate"), "ranks": [0, 3, 4, 5]}).cables(fabric))
    cut_cable(w, ports, fabric, "sw1-2-sw1-0", up=True)
    for name in ("sw0-1-sw1-1", "sw0-0-sw0-1"):
        assert fabric.cable(name) not in tree
        cut_cable(w, ports, fabric, name)
    assert not w.moved
    cut_cable(w, ports, fabric, "sw1-1-sw1-2")
    assert w.moved == {1: "its tree cannot stay: sw1-1-sw1-2 is down"}


def test_a_job_that_was_cut_off_moves_as_soon_as_there_is_another_way() -> None:
    fabric = with_accelerators(build("clos", {"leaves": 3, "spines": 2, "hosts_per_leaf": 1}))
    w, ports = wanted(fabric)
    cut_cable(w, ports, fabric, "leaf0-spine0")
    assert w.place({**job(fabric, "aggregate"), "ranks": [0, 1, 2]}).answer["root"] == "spine1"
    cut_cable(w, ports, fabric, "leaf0-spine1")
    assert not w.moved, "nothing joins its ranks"
    cut_cable(w, ports, fabric, "leaf0-spine0", up=True)
    assert w.moved == {1: "its tree cannot stay: leaf0-spine1 is down"}


def test_a_job_that_is_cut_off_leads_no_other_into_a_dead_cable() -> None:
    """Both send to leaf0's accelerator, for which a switch has one flow; the second job's rank 1 has no way."""
    fabric = with_accelerators(build("clos", {"leaves": 2, "spines": 1, "hosts_per_leaf": 1, "pods": 2, "cores": 2}))
    w, ports = wanted(fabric)
    w.place({**job(fabric, "best_effort"), "ranks": [0, 2, 3]})
    w.place({**job(fabric, "best_effort", 2), "ranks": [0, 1, 2, 3]})
    cut_cable(w, ports, fabric, "leaf1-spine0")

    def led_to() -> str:
        to = ("ipv4_dst", (str(fabric.switch_by_name["leaf0"].accelerator_ip), "255.255.255.255"))
        (action,) = next(flow.actions for flow in w.tables()["spine1"] if to in flow.match)
        assert isinstance(action, Output)
        return fabric.cable_at["spine1", action.port].other("spine1").node

    before = led_to()
    cut_cable(w, ports, fabric, f"spine0-{before}")
    assert {before, led_to()} == {"core0", "core1"}


def test_dead_accelerators_are_left_out_or_named() -> None:
    fabric = clos()
    root = place(fabric, Trees(fabric), job(fabric, "aggregate")).answer["root"]
    elsewhere = place(fabric, Trees(fabric), job(fabric, "aggregate", dead=[root])).answer["root"]
    assert {root, elsewhere} == {"spine0", "spine1"}
    with pytest.raises(JobRefused, match="leaf1's accelerator is down"):
        place(fabric, Trees(fabric), job(fabric, "aggregate", dead=["leaf1"]))
    with pytest.raises(JobRefused, match="spine0's accelerator is down"):
        place(clos(1), Trees(clos(1)), job(clos(1), "aggregate", dead=["spine0"]))
    assert place(fabric, Trees(fabric), job(fabric, "best_effort", dead=["leaf1"])).answer["tree"] == ["leaf0"]


class Asked:
    """A device that is asked for groups."""

    def __init__(self) -> None:
        self.cookies = 0
        self.left: list[int] = []
        self.forgotten: list[int] = []

    def ask(self) -> int:
        self.cookies += 1
        return self.cookies

    def queue(self, op: int, number: int, zero: int) -> None:
        self.left.append(number)

    def grouped(self, record: Record) -> Group:
        session: Any = self
        return Group(session, record.qp, record.imm, record.private.decode(), lambda number: None)

    def forget_group(self, cookie: int) -> None:
        self.forgotten.append(cookie)


def answer(cookie: int, refused: str = "") -> Record:
    return Record(wire.GROUPED, 0, cookie, 0, 100 + cookie, 16, len(refused), refused.encode())


def renewal() -> tuple[Renewal, Asked]:
    device: Any = Asked()
    return Renewal(device, device.ask), device


def test_a_group_that_had_worked_is_asked_for_at_once_and_again_after_each_refusal() -> None:
    r, device = renewal()
    r.begin(worked=True)
    for cookie in (1, 2, 3):
        assert device.cookies == cookie and r.owns(answer(cookie)) and not r.owns(answer(cookie + 1))
        r.look()
        assert device.cookies == cookie, "one question at a time"
        r.handle(answer(cookie, "spine0's accelerator is down"))
        r.look()
        assert r.group is None and device.left[-1] == 100 + cookie
        r.look()
    r.handle(answer(4))
    r.look()
    assert r.group is not None and r.group.number == 104 and device.left == [101, 102, 103]


def test_groups_that_fail_at_once_are_asked_for_more_and_more_rarely() -> None:
    r, device = renewal()
    pauses = []
    r.begin(worked=True)
    for _ in range(7):
        r.handle(answer(device.cookies))
        r.look()
        r.group, asked = None, device.cookies
        r.begin(worked=False)
        iterations = 0
        while device.cookies == asked:
            r.look()
            iterations += 1
        pauses.append(iterations)
    assert pauses == [1, 2, 4, 8, 16, 16, 16]


def test_a_group_that_fails_before_it_is_used_says_so_and_one_not_wanted_is_forgotten() -> None:
    r, device = renewal()
    r.begin(worked=True)
    r.handle(answer(1))
    failed = Record(wire.GROUP_FAILED, 0, 0, 0, 101, 0, 4, b"gone")
    assert r.owns(failed) and not r.owns(failed._replace(kind=wire.RECEIVED)), "queue pairs have numbers of their own"
    r.handle(failed)
    r.look()
    assert r.group is None and device.left == [101]
    r.look()
    r.close()
    assert device.forgotten == [2]
