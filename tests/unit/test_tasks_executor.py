"""Graphs of tasks on the fake fabric, where messages take random times: data is right, and order is kept."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.parts import task_graphs
from workloads.registry import ALGORITHMS
from workloads.tasks import communicator, messages
from workloads.tasks.executor import Executor
from workloads.tasks.graph import Graph
from workloads.tasks.requests import Requests
from workloads.tasks.task import Collective, Compute, Recv, Send, Task


def test_overlapping_groups_messages_and_computations() -> None:
    both = {"tp": ((0, 1), (2, 3)), "dp": ((0, 2), (1, 3)), "all": ((0, 1, 2, 3),)}
    tasks: dict[int, tuple[Task, ...]] = {}
    for rank in range(4):
        tasks[rank] = (
            Compute(id="c0", stream="gpu", duration_ns=5000),
            Collective(id="t0", stream="tp", collective="all_reduce", group="tp", size_bytes=40_000, after=("c0",)),
            Collective(id="d0", stream="dp", collective="all_reduce", group="dp", size_bytes=4 * 65537, op="avg"),
            Collective(id="d1", stream="dp", collective="reduce_scatter", group="dp", size_bytes=4 * 12345),
            Collective(id="d2", stream="dp", collective="all_gather", group="dp", size_bytes=4 * 12345),
            Collective(id="a0", stream="all", collective="all_to_all", group="all", size_bytes=4 * 9999),
            Collective(id="a1", stream="other", collective="broadcast", group="all", size_bytes=4 * 777),
            Send(id="s0", stream="out", peer=(rank + 1) % 4, size_bytes=100_001, tag="x"),
            Recv(id="r0", stream="in", peer=(rank - 1) % 4, size_bytes=100_001, tag="x"),
            Send(id="s1", stream="out", peer=(rank + 1) % 4, size_bytes=0, tag="y", group="all"),
            Recv(id="r1", stream="in", peer=(rank - 1) % 4, size_bytes=0, tag="y", group="all"),
            Compute(id="c1", stream="gpu", duration_ns=100, after=("t0", "r1", "d2", "a1", "a0")),
        )
    graph = Graph(both, tasks)
    for reduce_bps, by_channel in ((None, False), (8e9, False), (8e9, True)):
        lines = task_graphs.run(4, graph, iterations=3, reduce_bps=reduce_bps, by_channel=by_channel)
        assert len([line for line in lines if line["kind"] == "tasks"]) == 12
        task_graphs.in_order(graph, task_graphs.times(lines, graph))


def test_many_collectives_of_a_group_share_two_memories() -> None:
    many = tuple(Collective(id=str(k), collective="all_reduce", group="g", size_bytes=4 * (k + 3)) for k in range(30))
    graph = Graph({"g": ((0, 1, 2),)}, dict.fromkeys(range(3), many))
    assert {order["slot"] for order in task_graphs.step(graph)["tasks"]["0"]} == {0, 1}
    task_graphs.in_order(graph, task_graphs.times(task_graphs.run(3, graph), graph))


def test_collectives_of_each_stream_share_two_memories() -> None:
    """Whoever begins one of a stream knows nothing of the other stream's."""
    sizes = {"all_reduce": "sums", "all_gather": "parts"}
    many = tuple(
        Collective(id=f"{name}{k}", stream=sizes[name], collective=name, group="g", size_bytes=4 * (3 * k + 3))
        for k in range(12)
        for name in sizes
    )
    graph = Graph({"g": ((0, 1, 2),)}, dict.fromkeys(range(3), many))
    slots = {
        name: {o["slot"] for o in task_graphs.step(graph)["tasks"]["0"] if o["id"].startswith(name)} for name in sizes
    }
    assert slots == {"all_reduce": {0, 1}, "all_gather": {2, 3}}
    task_graphs.in_order(graph, task_graphs.times(task_graphs.run(3, graph, iterations=2), graph))


def test_those_that_nobody_waits_in_have_memory_of_their_own() -> None:
    many = tuple(Collective(id=str(k), collective="broadcast", group="g", size_bytes=4 * (k + 3)) for k in range(20))
    graph = Graph({"g": ((0, 1, 2),)}, dict.fromkeys(range(3), many))
    assert {order["slot"] for order in task_graphs.step(graph)["tasks"]["0"]} == set(range(20))
    task_graphs.run(3, graph, iterations=2)


def test_more_messages_than_receives_are_posted_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(communicator, "POSTED", 16)
    monkeypatch.setattr(messages, "POSTED", 16)
    count = 300
    out = tuple(Send(id=str(k), peer=1, size_bytes=4) for k in range(count))
    into = tuple(Recv(id=str(k), peer=0, size_bytes=4) for k in range(count))
    task_graphs.run(2, Graph({}, {0: out, 1: into}), iterations=2)
    many = tuple(Collective(id=str(k), collective="all_reduce", group="g", size_bytes=400) for k in range(40))
    task_graphs.run(3, Graph({"g": ((0, 1, 2),)}, dict.fromkeys(range(3), many)), iterations=2)


SIZED = sorted({e.collective.name for e in ALGORITHMS.values() if e.schedule and e.collective.sized})


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    """Groups that overlap, each rank's tasks a random order of what all agree in, with random streams and events."""
    ranks = draw(st.integers(2, 5))
    groups: dict[str, tuple[tuple[int, ...], ...]] = {}
    for k in range(draw(st.integers(1, 3))):
        order = draw(st.permutations(range(ranks)))
        cut = draw(st.integers(2, ranks))
        groups[f"g{k}"] = (tuple(order[:cut]), *([tuple(order[cut:])] if ranks - cut > 1 else []))
    tasks: dict[int, list[Task]] = {rank: [] for rank in range(ranks)}

    def add(rank: int, make: type[Task], **what: Any) -> None:
        """Events lead backwards in an order that all ranks have in common: so no circles."""
        its = tasks[rank]
        stream = draw(st.sampled_from(["a", "b", "c"]))
        after = tuple(draw(st.sets(st.sampled_from([t.id for t in its]), max_size=2))) if its else ()
        its.append(make(id=str(len(its)), stream=stream, after=after, **what))

    for number in range(draw(st.integers(1, 14))):
        what = draw(st.sampled_from(["compute", "collective", "collective", "message"]))
        if what == "compute":
            add(draw(st.integers(0, ranks - 1)), Compute, duration_ns=draw(st.sampled_from([0.0, 10.0, 5000.0])))
        elif what == "collective":
            group = draw(st.sampled_from(sorted(groups)))
            for members in groups[group]:
                allowed = [c for c in SIZED if c != "ping_pong"]
                told = {"collective": draw(st.sampled_from(allowed)), "size_bytes": 4 * draw(st.integers(1, 3000))}
                if told["collective"] == "send_recv" and len(members) != 2:
                    told["collective"] = "all_reduce"
                for rank in members:
                    add(rank, Collective, group=group, **told)
        else:
            a, b = draw(st.permutations(range(ranks)))[:2]
            size = draw(st.integers(0, 5000))
            add(a, Send, peer=b, size_bytes=size, tag=str(number % 2))
            add(b, Recv, peer=a, size_bytes=size, tag=str(number % 2))
    return Graph(groups, {rank: tuple(its) for rank, its in tasks.items()})


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(graphs(), st.integers(0, 2**32), st.sampled_from([None, 4e9]))
def test_any_graph(graph: Graph, seed: int, reduce_bps: float | None) -> None:
    if not any(graph.tasks.values()):
        return
    lines = task_graphs.run(len(graph.tasks), graph, seed=seed, iterations=2, reduce_bps=reduce_bps)
    for iteration in range(2):
        found = task_graphs.times(lines, graph, iteration=iteration)
        assert len(found) == sum(map(len, graph.tasks.values()))


def test_parts_that_connect_go_first_by_when_their_ranks_have_met() -> None:
    """All ranks have these times in common, so no two groups wait for each other's connections."""
    went: list[str] = []

    class Asked:
        def __init__(self, name: str, met_ps: int, *, connects: bool) -> None:
            self.part, self.met_ps, self.name = SimpleNamespace(connects=connects), met_ps, name

        turn = Requests.turn

        def go_on(self) -> list[Any]:
            went.append(self.name)
            return []

    executor = object.__new__(Executor)
    executor._ready, executor._later = [], []
    both = [Asked("late", 70, connects=True), Asked("soon", 40, connects=True)]
    executor.requests = [Asked("a", 90, connects=False), *both, Asked("b", 10, connects=False)]  # type: ignore[list-item]
    executor._start_ready()
    assert went == ["soon", "late", "a", "b"]


def test_a_task_does_not_begin_before_its_time() -> None:
    """On a stream that is free, behind others, at once with records that come, and after its time has passed."""
    tasks: dict[int, tuple[Task, ...]] = {
        0: (
            Compute(id="late", stream="a", duration_ns=100.0, not_before_ns=5000.0),
            Compute(id="behind", stream="a", duration_ns=100.0),
            Compute(id="long", stream="b", duration_ns=9000.0),
            Compute(id="passed", stream="b", duration_ns=10.0, not_before_ns=6000.0),
            Compute(id="same", stream="c", duration_ns=10.0, not_before_ns=9000.0),
            Send(id="out", stream="d", peer=1, size_bytes=40, not_before_ns=20_000.0),
        ),
        1: (Recv(id="in", peer=0, size_bytes=40),),
    }
    graph = Graph({}, tasks)
    found = task_graphs.times(task_graphs.run(2, graph, iterations=2), graph, iteration=1)
    assert found[0, "late"] == (5000.0, 5100.0) and found[0, "behind"] == (5100.0, 5200.0)
    assert found[0, "passed"][0] == found[0, "same"][0] == 9000.0
    assert found[0, "out"][0] == 20_000.0 and found[1, "in"][1] > 20_000.0
