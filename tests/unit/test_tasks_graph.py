"""Graphs of tasks: what is refused and how it is said; the longest path against figures worked out by hand."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workloads.tasks.check import BadGraph
from workloads.tasks.graph import Graph, Settings
from workloads.tasks.oracle import oracle, step_ns
from workloads.tasks.task import Collective, Compute, Recv, Send, Task

PAIR = {"dp": ((0, 1),)}


def work(id: str, ns: float = 100.0, **more: Any) -> Compute:
    return Compute(id=id, duration_ns=ns, **more)


def together(id: str, group: str = "dp", size: int = 1024, **more: Any) -> Collective:
    return Collective(id=id, collective="all_reduce", group=group, size_bytes=size, **more)


def send(id: str, peer: int, size: int = 64, **more: Any) -> Send:
    return Send(id=id, peer=peer, size_bytes=size, **more)


def recv(id: str, peer: int, size: int = 64, **more: Any) -> Recv:
    return Recv(id=id, peer=peer, size_bytes=size, **more)


@pytest.mark.parametrize(
    ("tasks", "says"),
    [
        ({0: [work("a"), work("a")]}, "rank 0, task 'a': another task of this rank has the same id"),
        ({3: [work("a", after=("b",))]}, "rank 3, task 'a': it waits for 'b', which this rank has no task of"),
        ({0: [work("a", after=("a",))]}, "rank 0, task 'a': it waits for itself"),
        ({0: [work("")]}, "rank 0: task 0 has an empty id"),
        ({0: [work("a", stream="")]}, "rank 0, task 'a': its stream has an empty name"),
        ({0: [work("a", -1)]}, "rank 0, task 'a': a duration of -1 ns"),
        ({0: [work("a", float("nan"))]}, "a duration of nan ns"),
        ({0: [together("g", "tp")]}, "rank 0, task 'g': there is no group 'tp' (there is dp)"),
        ({2: [together("g")]}, "rank 2, task 'g': rank 2 is not in group 'dp'"),
        (
            {0: [together("g")]},
            "rank 0, task 'g': all_reduce of group 'dp': rank 1 of that group has no 1st collective",
        ),
        (
            {0: [together("g")], 1: [together("h", size=2048)]},
            "rank 0, task 'g': the 1st collective on group 'dp' has size_bytes 1024 here, and 2048 at rank 1",
        ),
        ({0: [together("g", dtype="float12")], 1: []}, "there is no element type 'float12'"),
        ({0: [together("g", op="mean")], 1: []}, "there is no reduction 'mean'"),
        ({0: [send("s", 1)], 1: []}, "rank 0, task 's': send to rank 1, which does not receive it"),
        (
            {0: [], 1: [recv("r", 0, tag="x")]},
            "rank 1, task 'r': receive from rank 0 with tag 'x', which sends no such",
        ),
        ({0: [send("s", 1, 8)], 1: [recv("r", 0, 9)]}, "rank 1, task 'r': receive from rank 0: 9 bytes here, 8 in its"),
        ({0: [send("s", 0)]}, "rank 0, task 's': a message of a rank to itself"),
        ({0: [send("s", 1, group="pp")], 1: []}, "there is no group 'pp'"),
        (
            {0: [work("a", after=("b",)), work("b", stream="x", after=("a",))]},
            "rank 0, task 'a': tasks wait for each other in a circle: task 'a' of rank 0 (compute), which waits for "
            "task 'b' of rank 0 (compute), which waits for task 'a' of rank 0 (compute)",
        ),
        (  # the second waits for the first on their stream
            {0: [work("a", after=("b",)), work("b")]},
            "tasks wait for each other in a circle",
        ),
        (  # each receives before it sends
            {0: [recv("r", 1), send("s", 1)], 1: [recv("r", 0), send("s", 0)]},
            "task 'r' of rank 0 (receive from rank 1), which waits for task 's' of rank 1",
        ),
        ({0: [Task(id="t")]}, "Task is no kind of task"),
    ],
)
def test_a_graph_that_cannot_be_carried_out_is_refused(tasks: dict[int, list[Task]], says: str) -> None:
    with pytest.raises(BadGraph) as e:
        Graph(PAIR, {rank: tuple(its) for rank, its in tasks.items()})
    assert says in str(e.value)


def test_collectives_of_two_groups_in_opposite_orders_are_a_circle() -> None:
    tasks = {0: (together("a", "x"), together("b", "y")), 1: (together("b", "y"), together("a", "x"))}
    with pytest.raises(BadGraph, match=r"circle: task 'a' of rank 0 \(all_reduce of group 'x'\), which waits for"):
        Graph({"x": ((0, 1),), "y": ((0, 1),)}, tasks)
    apart = {r: tuple(together(t.id, t.group, stream=t.group) for t in its) for r, its in tasks.items()}
    Graph({"x": ((0, 1),), "y": ((0, 1),)}, apart)  # on streams of their own nobody waits


@pytest.mark.parametrize(
    ("groups", "says"),
    [
        ({"g": ((0, 1), (1, 2))}, "group 'g': rank 1 stands in it twice"),
        ({"g": ((),)}, "group 'g': a tuple of no ranks"),
        ({"g": ((0, -1),)}, "group 'g': there is no rank -1"),
    ],
)
def test_bad_groups_are_refused(groups: dict[str, tuple[tuple[int, ...], ...]], says: str) -> None:
    with pytest.raises(BadGraph, match=says.replace("(", r"\(")):
        Graph(groups, {})


def test_settings_are_of_groups_that_there_are() -> None:
    with pytest.raises(BadGraph, match="settings for group 'tp'"):
        Graph(PAIR, {}, {"tp": Settings()})
    graph = Graph(PAIR, {0: (together("a"),), 1: (together("a"),)}, {"dp": Settings(algorithms={"all_reduce": "ring"})})
    assert graph.algorithm(together("a")) == "ring"
    assert graph.algorithm(together("a", algorithm="in_network")) == "in_network"
    assert graph.algorithm(Collective(id="a", collective="barrier", group="dp", size_bytes=0)) is None


def test_a_collective_is_with_the_tuple_that_has_the_rank() -> None:
    each = (together("a"), together("b"))
    graph = Graph({"dp": ((0, 2), (1, 3))}, dict.fromkeys(range(4), each))
    assert graph.members(3, each[0]) == (1, 3)
    names = {rank: [graph.links.instances[rank, n].name for n in (0, 1)] for rank in range(4)}
    assert names[0] == names[2] == ["dp[0,2]#0", "dp[0,2]#1"]
    assert names[1] == names[3] == ["dp[1,3]#0", "dp[1,3]#1"]


def test_streams_run_side_by_side_and_events_join_them() -> None:
    tasks = (
        work("a", 100),
        work("b", 50),
        work("c", 30, stream="side"),
        work("d", 10, stream="side", after=("a",)),
        work("e", 1, after=("d",)),
    )
    times = oracle(Graph({}, {0: tasks}), lambda rank, task: 0.0)
    assert times[0, "b"] == (100, 150)
    assert times[0, "c"] == (0, 30)
    assert times[0, "d"] == (100, 110)
    assert times[0, "e"] == (150, 151)
    assert step_ns(times) == 151


def test_a_collective_begins_when_its_last_member_does() -> None:
    graph = Graph(PAIR, {0: (together("g"), work("b", 5)), 1: (work("a", 70), together("g"))})
    times = oracle(graph, lambda rank, task: 20.0)
    assert times == {(0, "g"): (0, 90), (0, "b"): (90, 95), (1, "a"): (0, 70), (1, "g"): (70, 90)}


def test_a_send_does_not_wait_for_its_receiver() -> None:
    graph = Graph({}, {0: (send("s", 1), work("b", 5)), 1: (work("a", 70), recv("r", 0))})
    times = oracle(graph, lambda rank, task: 20.0 if isinstance(task, Send) else 18.0)
    assert times == {(0, "s"): (0, 20), (0, "b"): (20, 25), (1, "a"): (0, 70), (1, "r"): (70, 70)}


@pytest.mark.parametrize("count", [1, 2, 5, 8])
def test_gpipe_by_hand(count: int) -> None:
    """(m + p - 1)(tf + tb) + 2 (p - 1) Tc."""
    p, tf, tb, tc = 4, 100.0, 200.0, 8.66
    tasks: dict[int, tuple[Task, ...]] = {}
    for r in range(p):
        its: list[Task] = []
        for way, ns, source, target in (("f", tf, r - 1, r + 1), ("b", tb, r + 1, r - 1)):
            for j in range(count):
                got: tuple[str, ...] = ()
                if 0 <= source < p:
                    its.append(recv(f"r{way}{j}", source, stream=f"r{way}{j}", tag=f"{way}{j}"))
                    got = (f"r{way}{j}",)
                its.append(work(f"{way}{j}", ns, after=got))
                if 0 <= target < p:
                    done = (f"{way}{j}",)
                    its.append(send(f"s{way}{j}", target, stream=f"s{way}{j}", tag=f"{way}{j}", after=done))
        tasks[r] = tuple(its)
    times = oracle(Graph({}, tasks), lambda rank, task: tc)
    last = max(end for (_, id), (_, end) in times.items() if id[0] == "b")
    assert last == pytest.approx((count + p - 1) * (tf + tb) + 2 * (p - 1) * tc)


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 90), st.lists(st.integers(0, 30), max_size=3)), max_size=25)
)
def test_the_longest_path_is_no_shorter_than_any_and_as_long_as_one(drawn: list[tuple[int, int, list[int]]]) -> None:
    tasks = tuple(
        work(str(k), float(ns), stream=str(stream), after=tuple({str(a % k) for a in after} if k else ()))
        for k, (stream, ns, after) in enumerate(drawn)
    )
    graph = Graph({}, {0: tasks})
    times = oracle(graph, lambda rank, task: 0.0)
    for number, task in enumerate(tasks):
        start, end = times[0, task.id]
        before = [times[0, tasks[n].id][1] for _, n in graph.links.before[0, number]]
        assert end == start + task.duration_ns
        assert start == max(before, default=0.0)
