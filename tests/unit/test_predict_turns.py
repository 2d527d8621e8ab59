"""What has to cross a dateline has a class of its own on a grid, and takes turns with the other."""

from __future__ import annotations

import pytest

from controllers.routing.dateline import Dateline
from testbed.experiment import loads
from testbed.plan.routes import Routes
from topologies.ranks.hops import Hops
from workloads.collectives.exchange import linear_gather
from workloads.collectives.schedule import Shape
from workloads.times.case import Case
from workloads.times.expected import replayed_ends


def routes(topology: str, more: str = "") -> Routes:
    return Routes(loads(f"name: t\nfabric: {{topology: {topology}}}\n{more}workload: []"))


@pytest.mark.parametrize(
    "topology",
    [
        "{torus: {dims: [3, 5]}}",
        "{torus: {dims: [2, 4, 3]}}",
        "{torus: {dims: [4, 3], direct: true}}",
        "{ring: {nodes: 7}}",
    ],
)
def test_messages_are_in_the_class_that_the_controller_gives_them(topology: str) -> None:
    """Of each pair, each hop between switches; the last cable, where no switch changes it, likewise."""
    hops = Hops(routes(topology).fabric)
    fabric, dateline = hops.fabric, Dateline(hops.fabric)
    port_to = {(e.node, c.other(e.node).node): e.port for c in fabric.cables for e in (c.a, c.b)}
    for a, source in enumerate(fabric.nics):
        for b, target in enumerate(fabric.nics):
            if source is not target:
                way = hops.between(a, b)
                wanted = [
                    int(target.ip) in dateline.across(fabric.switch_by_name[at], port_to[at, to])
                    for at, to in way[1:-1]
                ]
                assert list(hops.across(way)) == [False, *wanted, wanted[-1]]


@pytest.mark.parametrize(("more", "shares"), [("", (3, 2, 3)), ("control: {dateline: false}\n", (3, 3, 3))])
def test_two_classes_share_a_cable_by_halves(more: str, shares: tuple[int, ...]) -> None:
    """Three neighbours send host 0 as much each, one of them around: it has half of the cable until it is through.

    So it takes the time of two such messages, and the others that of three, where one class takes all in turn.
    """
    its, each = routes("{torus: {dims: [3, 3]}}", more), 16 << 20
    counts = tuple(each // 4 if rank in (1, 2, 3) else 0 for rank in range(9))  # 2 at (0, 2), 1 and 3 beside (0, 0)
    case = Case(Shape(9, sum(counts), counts=(counts,)), 4, its.costs, its.ways(range(9)))
    ends = replayed_ends(case, linear_gather, [0.0] * 9)
    alone = each * (1 + 82 / 4096) * 8e9 / 400e9
    assert ends is not None
    assert [ends[rank] / alone for rank in (1, 2, 3)] == pytest.approx(shares, rel=0.02)


def test_without_the_mark_there_are_no_turns() -> None:
    """Switches change the class by DSCP 26 alone, and it is another one only if the two marks have classes that differ.

    On a ring of five the way from the last rank to the first wraps around.
    """
    for more, turns in (
        ("", True),
        ("transport: {dscp: 46}\n", False),
        ("control: {dateline: false}\n", False),
    ):
        assert any(routes("{ring: {nodes: 5}}", more).ways(range(5)).route((4, 0)).second) is turns
    one_class = routes("{ring: {nodes: 5}}, switch: {dscp: {26: 3, 28: 3}}")
    assert not any(one_class.ways(range(5)).route((4, 0)).second)
