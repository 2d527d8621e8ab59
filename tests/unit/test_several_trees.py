"""Several trees for one message: what each part of the fabric has of it by counting, when it helps, who takes over."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from testbed.experiment import Experiment, loads
from testbed.plan.steps.plan import plan
from testbed.predict import predict
from workloads.collectives.schedule import Span
from workloads.offloads.offloaded import AGREE, OneRequest
from workloads.parts.part import Sync

CLOS = "{clos: {leaves: %d, spines: 4, hosts_per_leaf: %d}}"
MIB, ELEMENTS = 1 << 20, 1024
PACKET = 4 * ELEMENTS + 106  # Ethernet, IPv4, UDP, BTH, 24 of ours, ICRC, preamble and gap
DATAGRAM = 4096 + 106


def experiment(topology: str, step: dict[str, Any], *, adders: str = "elements: 1024", more: str = "") -> Experiment:
    fabric = f"topology: {topology}, switch: {{accelerator: {{{adders}}}}}, nic: {{pcie: {{rate: 4Tbps}}}}{more}"
    told = {"dtype": "int32", "sizes": ["64MiB"], **step}
    return loads(f"name: t\nfabric: {{{fabric}}}\nworkload: {json.dumps([told])}\n")


def took_ns(*args: Any, **more: Any) -> float:
    (figure,) = predict(experiment(*args, **more)).figures
    return figure.time_ns


def sums(trees: int, collective: str = "all_reduce", **more: Any) -> dict[str, Any]:
    return {"collective": collective, "algorithm": "in_network", "trees": trees, **more}


@pytest.mark.parametrize("collective", ["all_reduce", "reduce"])
@pytest.mark.parametrize(("trees", "uplinks"), [(1, 1), (2, 2), (3, 3), (4, 4), (8, 4)])
def test_each_tree_has_uplinks_of_its_own(collective: str, trees: int, uplinks: int) -> None:
    """Uplinks of a quarter of the hosts' rate: of what a leaf adds up, each of so many spines gets a share."""
    slow = ", cable: {rate: 100Gbps}, host_cable: {rate: 400Gbps}"
    line = 64 * MIB / 4096 * PACKET * 8 / min(100 * uplinks, 400)
    if collective == "reduce":  # a block's sum, and a result without elements for the others, on one cable
        line *= 1 + 106 / PACKET
    assert took_ns(CLOS % (4, 4), sums(trees, collective), more=slow) == pytest.approx(line, rel=0.01)


@pytest.mark.parametrize("trees", [1, 4])
def test_where_hosts_cables_are_full_more_trees_do_not_help(trees: int) -> None:
    line = 64 * MIB / 4096 * PACKET * 8 / 400
    assert took_ns(CLOS % (4, 4), sums(trees)) == pytest.approx(line, rel=0.01)


@pytest.mark.parametrize(("trees", "ports"), [(1, 1), (2, 2), (4, 2)])
def test_trees_over_different_leaves_use_all_ports_of_a_nic(trees: int, ports: int) -> None:
    line = 64 * MIB / 4096 * PACKET * 8 / (400 * ports)
    two = "{clos: {leaves: 4, spines: 4, hosts_per_leaf: 2, links: 2}}"
    assert took_ns(two, sums(trees)) == pytest.approx(line, rel=0.015)


@pytest.mark.parametrize(("trees", "busiest"), [(1, 8), (2, 4), (4, 2)])
def test_roots_share_what_an_accelerator_has_to_add(trees: int, busiest: int) -> None:
    """Of eight leaves with two hosts: into a root comes a share of each leaf's sums, into a leaf all of its hosts'."""
    rate = "elements: 1024, rate: 400Gbps"
    line = 64 * MIB / 4096 * PACKET * 8 / 400 * busiest
    assert took_ns(CLOS % (8, 2), sums(trees), adders=rate) == pytest.approx(line, rel=0.01)


@pytest.mark.parametrize(("collective", "crossing"), [("broadcast", 1.0), ("all_gather", 0.75)])
@pytest.mark.parametrize("trees", [1, 2, 4])
def test_multicasts_share_the_uplinks_likewise(collective: str, crossing: float, trees: int) -> None:
    """Into each leaf come the other leaves' parts, three of four, or all of the root's vector."""
    slow = ", cable: {rate: 50Gbps}, host_cable: {rate: 400Gbps}"
    step = {"collective": collective, "algorithm": "multicast", "trees": trees, "cutoff": "1ms"}
    line = crossing * 64 * MIB / 4096 * DATAGRAM * 8 / (50 * trees)
    assert took_ns(CLOS % (4, 4), step, more=slow) == pytest.approx(line, rel=0.02)


def test_slots_are_divided() -> None:
    def told(step: dict[str, Any], adders: str = "elements: 1024") -> dict[str, Any]:
        (planned,) = plan(experiment(CLOS % (4, 4), step, adders=adders)).told()["steps"]
        return dict(planned["aggregation"])

    one, four = told(sums(1)), told(sums(4))
    assert one["slots"] == four["slots"] == 128, "each may have a cable to itself"
    assert told(sums(4, slots=128))["slots"] == 32, "what is asked for is asked for all of them"
    assert told(sums(4), "elements: 1024, slots: 200")["slots"] == 50
    later = 3 * 128 * PACKET * 8 / 400  # all trees' packets may be before one
    assert four["timeout_ns"] == pytest.approx(one["timeout_ns"] + later)


# auto


def chosen(topology: str, more: str = "", **step: Any) -> dict[str, Any]:
    told = {"collective": "all_reduce", "algorithm": "auto", "offloads": True, "sizes": ["1MiB"], **step}
    (planned,) = plan(experiment(topology, told, more=more)).steps
    return dict(planned.chosen[str(MIB)])


def test_auto_takes_several_trees_where_they_help() -> None:
    slow = ", cable: {rate: 100Gbps}, host_cable: {rate: 400Gbps}"
    found = chosen(CLOS % (4, 2), slow)
    assert (found["algorithm"], found["trees"]) == ("in_network", 4)
    expected = found["expected_ns"]
    assert expected["in_network[trees=4]"] < expected["in_network[trees=2]"] < expected["in_network"]
    named = took_ns(CLOS % (4, 2), sums(4, sizes=["1MiB"]), more=slow)
    assert expected["in_network[trees=4]"] == pytest.approx(named, abs=1)
    assert chosen(CLOS % (4, 2), slow, collective="broadcast")["trees"] == 4
    full = chosen(CLOS % (4, 2))
    assert full["algorithm"] == "in_network" and "trees" not in full
    assert not any("trees" in label for label in full["expected_ns"])


# Who takes over


class Lane:
    """As one of a part's groups."""

    def __init__(self) -> None:
        self.given_up = self.noted = ""
        self.renewal = None
        self.shares: list[list[Span]] = []
        self.left = False

    def take(self, share: list[Span]) -> None:
        self.share, self.through = share, not share or bool(self.given_up)
        self.shares.append(share)

    def met(self) -> bool:
        return not self.given_up

    def renew(self) -> None:
        self.left = True

    def fail(self) -> None:
        self.given_up, self.through = "gone", True


class Alone:
    """As what hosts do instead."""

    def __init__(self) -> None:
        self.did: list[Any] = []

    def prepare(self, *what: Any) -> None:
        self.did.append(what)

    def work(self) -> Iterator[None]:
        self.did.append("work")
        yield None


def part(lanes: int, count: int) -> Any:
    one: Any = OneRequest.__new__(OneRequest)
    one.lanes, one._gone, one.by_hosts, one._alone = [Lane() for _ in range(lanes)], {}, False, Alone()
    one.count, one.unit, one.tag, one.n, one.size_bytes, one.start = count, 4, 7, 3, 4 * count, 0
    return one


def test_shares_are_whole_packets_and_all_of_the_vector() -> None:
    one = part(3, 33)
    work = one.work()
    assert next(work) is None
    assert [lane.share for lane in one.lanes] == [[Span(0, 12)], [Span(12, 24)], [Span(24, 33)]]
    for lane in one.lanes:
        lane.through = True
    assert next(work) == Sync(AGREE + 7, 3) and next(work, "done") == "done"
    assert one.fallback == "" and not one.by_hosts
    little = part(3, 5)
    next(little.work())
    assert [lane.share for lane in little.lanes] == [[Span(0, 4)], [Span(4, 5)], []]


def test_others_do_what_a_tree_has_left_undone_and_hosts_only_when_none_is_left() -> None:
    one = part(3, 36)
    work, (first, second, third) = one.work(), one.lanes
    assert next(work) is None
    second.fail()
    first.through = third.through = True
    assert isinstance(next(work), Sync)
    assert next(work) is None, "the second's share is under way again"
    assert (first.share, third.share) == ([Span(12, 20)], [Span(20, 24)]) and len(second.shares) == 1
    third.fail()
    first.through = True
    assert isinstance(next(work), Sync) and next(work) is None
    assert first.share == [Span(20, 24)]
    first.through = True
    assert isinstance(next(work), Sync) and next(work, "done") == "done"
    assert one.fallback == "2 of 3 trees: gone" and (first.left, second.left, third.left) == (False, True, True)
    assert not one._alone.did
    work = one.work()
    assert next(work) is None and first.share == [Span(0, 36)]
    first.fail()
    assert isinstance(next(work), Sync) and next(work) is None, "the hosts are at it"
    assert one._alone.did == [(144, 0), "work"] and one.by_hosts and next(work, "done") == "done"
    assert one.fallback == "gone" and first.left


def test_a_rank_that_learns_of_it_first_still_shares_as_the_others_do() -> None:
    """It posts nothing to a group that has failed, but leaves its share there until all know."""
    one = part(2, 16)
    one.lanes[1].given_up = "gone"
    next(one.work())
    assert [lane.share for lane in one.lanes] == [[Span(0, 8)], [Span(8, 16)]]
