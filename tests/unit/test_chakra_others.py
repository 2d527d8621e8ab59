"""Traces of Chakra that others have written: in which order, how long, and what cannot be replayed."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest

from tests.parts import task_graphs
from tests.parts.trace_nodes import TWO_STAGES, coll, comp, two_stages
from workloads.chakra import record, replay
from workloads.chakra.et import BadTrace, Node, Trace
from workloads.chakra.names import OWN
from workloads.chakra.replay import Reading, Roofline
from workloads.tasks.graph import Graph
from workloads.tasks.oracle import oracle
from workloads.tasks.task import Collective, Compute, Recv, Send


def bare(**attributes: Any) -> Node:
    return Node(5, "x", 7, attributes={"pg_name": "2"} | attributes)


def graph_of(*nodes: list[Node], groups: Any = None, how: Reading | None = None) -> Graph:
    return replay.graph({r: Trace(list(its)) for r, its in enumerate(nodes)}, groups, how)


def test_one_of_each_kind_at_a_time_and_receives_beside_them() -> None:
    send = Node(6, "s", 5, attributes={"comm_dst": 1, "comm_size": 8, "comm_tag": 3})
    sent = Node(7, "s", 5, attributes={"comm_dst": 1, "comm_size": 8, "comm_tag": 4})
    here = Node(1, "r", 6, attributes={"comm_src": 0, "comm_size": 8, "comm_tag": 4})
    there = Node(2, "r", 6, attributes={"comm_src": 0, "comm_size": 8, "comm_tag": 3})
    last = Node(4, "r", 6, data_deps=[3], attributes={"comm_src": 0, "comm_size": 8, "comm_tag": 4})
    again = Node(8, "s", 5, attributes={"comm_dst": 1, "comm_size": 8, "comm_tag": 4})
    graph = graph_of([comp(1, 10), comp(2, 20), comp(3, 5, cpu=True), comp(4, 5, 3), send, sent, again],
                     [here, there, comp(3, 1, 1), last])  # fmt: skip
    streams = {t.id: t.stream for t in graph.tasks[0]}
    assert streams == {
        "1 c1": "gpu",
        "2 c2": "gpu",
        "3 c3": "cpu",
        "4 c4": "gpu",
        "6 s": "comm",
        "7 s": "comm",
        "8 s": "comm",
    }
    # the receive that waits for another one is behind it anyway
    assert {t.id: t.stream for t in graph.tasks[1]} == {
        "1 r": "receive", "2 r": "receive 1", "3 c3": "gpu", "4 r": "receive"
    }  # fmt: skip
    times = oracle(graph, lambda rank, task: 100.0)
    assert times[0, "4 c4"] == (30_000, 35_000) and times[0, "3 c3"] == (0, 5_000)


def test_the_order_is_that_of_the_recorded_starts_but_never_before_what_is_waited_for() -> None:
    graph = graph_of([comp(1, 1, start=30), comp(2, 1, start=10), comp(3, 1, 1, start=5), comp(4, 1, start=20)])
    times = oracle(graph, lambda rank, task: 0.0)
    assert [name[0] for _, name in sorted(times, key=times.__getitem__)] == ["2", "4", "1", "3"]


def test_whatever_is_ready_goes_first_as_the_usual_feeder_has_it() -> None:
    """By hand, with 5 us for a message and 100 for a sum: of two that are ready the sum's id is less (node 5, 7)."""
    graph = graph_of(*two_stages(), groups=TWO_STAGES)
    times = oracle(graph, lambda rank, task: 100_000.0 if isinstance(task, Collective) else 5_000.0)
    us = {(rank, name): (start / 1000, end / 1000) for (rank, name), (start, end) in times.items()}
    first = {
        "1 c1": (0, 10), "8 s0": (10, 15), "3 c3": (10, 20), "9 s1": (20, 25), "6 r2": (0, 50), "2 c2": (50, 70),
        "7 r3": (0, 180), "4 c4": (180, 200), "5 n5": (200, 300),
    }  # fmt: skip
    last = {
        "1 r0": (0, 15), "3 c3": (15, 45), "6 s2": (45, 50), "2 r1": (0, 25), "4 c4": (45, 75), "5 n5": (75, 175),
        "7 s3": (175, 180),
    }  # fmt: skip
    assert us == {(rank, name): span for rank in range(4) for name, span in (first if rank < 2 else last).items()}


def test_ranks_issue_whatever_is_ready_first() -> None:
    graph = graph_of(*two_stages(), groups=TWO_STAGES)
    times = task_graphs.times(task_graphs.run(4, graph), graph)
    gpu = {
        rank: [name for r, name in sorted(times, key=times.__getitem__) if r == rank and " c" in name]
        for rank in range(4)
    }
    assert gpu == dict.fromkeys((0, 1), ["1 c1", "3 c3", "2 c2", "4 c4"]) | dict.fromkeys((2, 3), ["3 c3", "4 c4"])
    for rank in range(4):
        comm = sorted(times[rank, t.id] for t in graph.tasks[rank] if t.stream == "comm")
        assert all(a[1] <= b[0] for a, b in pairwise(comm))


def test_what_others_wait_for_and_is_not_there_is_refused_or_taken_to_have_ended() -> None:
    with pytest.raises(BadTrace, match=r"node 1 'c1': it waits for node 7, .* \(missing: ignore passes over"):
        graph_of([comp(1, 1, 7), comp(2, 1, 1)])
    graph = graph_of([comp(1, 1, 7), comp(2, 1, 2, 1)], how=Reading(missing=True))
    assert [(t.id, t.after) for t in graph.tasks[0]] == [("1 c1", ()), ("2 c2", ("1 c1",))]


def test_metadata_takes_no_time_and_passes_on_what_it_waits_for() -> None:
    graph = graph_of([comp(1, 1), Node(2, "m", 1, data_deps=[1]), Node(3, "", 0, data_deps=[2]), comp(4, 1, 3, 2)])
    assert [(t.id, t.after) for t in graph.tasks[0]] == [("1 c1", ()), ("4 c4", ("1 c1",))]


def test_sizes_are_those_of_nccl_tests_and_groups_everybody_where_none_is_named() -> None:
    nodes = [coll(1, comm_type=2, comm_size=1000, pg_name="5"), coll(2, comm_type=7, comm_size=1000, pg_name="5"),
             coll(3, comm_type=0, comm_size=6, pg_name="0"), coll(4, comm_type=9)]  # fmt: skip
    graph = graph_of(nodes, nodes, groups={"5": [0, 1]})
    told = [(t.collective, t.group, t.size_bytes, t.dtype) for t in graph.tasks[0] if isinstance(t, Collective)]
    assert told == [
        ("all_gather", "5", 2000, "float32"), ("reduce_scatter", "5", 1000, "float32"),
        ("all_reduce", "world", 6, "uint8"), ("barrier", "world", 0, "float32"),
    ]  # fmt: skip
    assert graph.groups == {"5": ((0, 1),), "world": ((0, 1),)}


def test_collectives_of_one_rank_and_of_no_bytes() -> None:
    alone = [comp(1, 1), coll(2, 1, pg_name="1"), comp(3, 1, 2)]
    assert [(t.id, t.after) for t in graph_of(alone, groups={"1": [0]}).tasks[0]] == [("1 c1", ()), ("3 c3", ("1 c1",))]
    assert [t.id for t in graph_of([coll(2)]).tasks[0]] == []
    empty = coll(2, comm_type=6, comm_size=0)
    (task,) = graph_of([empty], [empty]).tasks[0]
    assert isinstance(task, Collective) and (task.collective, task.size_bytes) == ("barrier", 0)


def test_times_by_a_roofline() -> None:
    how = Reading(Roofline(1e12, 1e9))
    nodes = [comp(1, 7, num_ops=10**6, tensor_size=10), comp(2, 7, num_ops=10, tensor_size=10**3), comp(3, 7, cpu=True)]
    graph = graph_of(nodes, how=how)
    assert [t.duration_ns for t in graph.tasks[0] if isinstance(t, Compute)] == [1000.0, 1000.0, 7000.0]


@pytest.mark.parametrize(
    ("nodes", "said"),
    [
        ([Node(5, "x", 8)], "rank 0: node 5 'x': it is of type storage, which is not replayed (skip: [storage]"),
        ([Node(5, "x", 77)], "node 5 'x': it is of type 77, which is not replayed (skip: [77]"),
        ([bare(comm_type=0)], "node 5 'x': a comm_coll node has no comm_size: nothing is guessed"),
        ([bare(comm_size=8)], "node 5 'x': a comm_coll node has no comm_type"),
        ([coll(5, pg_name="3")], "group '3' has rank 2, of which there is no trace"),
        ([coll(5, comm_type=12, pg_name="2")], "there is no collective 12"),
        ([coll(5, comm_size="8", pg_name="2")], "its comm_size is '8', and not a whole number"),
        ([coll(5, comm_size=-8, pg_name="2")], "its comm_size is -8"),
        ([coll(5, pg_name="9")], "there is no group '9' (the groups' file has 1, 2, 3)"),
        ([coll(5, pg_name="1")], "rank 0 is not in group '1'"),
        ([Node(5, "x", 5, attributes={"comm_dst": 3, "comm_size": 1})], "there is no rank 3: there are traces of 2"),
        ([Node(5, "x", 5, attributes={"comm_src": 2, "comm_dst": 0, "comm_size": 1})], "it is of rank 2, and this is"),
        ([Node(5, "x", 5, attributes={"comm_size": 1})], "a comm_send node has no comm_dst"),
        ([comp(5, 0, num_ops=8)], "no recorded time"),
        ([comp(5, 1), comp(5, 1)], "another node of this trace has the same id"),
        ([comp(5, 1, 6)], "node 5 'c5': it waits for node 6, which this trace does not have"),
        ([comp(5, 1, 5)], "it waits for itself"),
        ([comp(1, 1, 2), comp(2, 1, 3), comp(3, 1, 1)], "circle: node 1 'c1', which waits for node 2 'c2', which"),
    ],
)  # fmt: skip
def test_what_cannot_be_replayed_is_said_with_file_and_node(nodes: list[Node], said: str) -> None:
    with pytest.raises(BadTrace) as raised:
        graph_of(nodes, [], groups={"1": [1], "2": [0, 1], "3": [0, 2]})
    assert said in str(raised.value) and str(raised.value).startswith("rank 0: ")


def test_ranks_that_do_not_fit_each_other_are_said_with_file_and_node() -> None:
    with pytest.raises(BadTrace) as raised:
        graph_of([coll(5)], [])
    assert str(raised.value).startswith("rank 0: node 5 'n5': all_reduce of group 'world': rank 1 of that group has no")
    with pytest.raises(BadTrace, match="there is no trace of rank 1: there are 0, 2"):
        replay.graph({0: Trace(), 2: Trace()})


def test_types_that_are_to_be_passed_over() -> None:
    nodes = [comp(1, 1), Node(2, "x", 8, data_deps=[1]), Node(3, "y", 77, data_deps=[2]), comp(4, 1, 3)]
    graph = graph_of(nodes, how=Reading(skip=frozenset({"storage", "77"})))
    assert [(t.id, t.after) for t in graph.tasks[0]] == [("1 c1", ()), ("4 c4", ("1 c1",))]


@pytest.mark.parametrize("damage", ["{", "[]", '{"stream": "main"}', '{"stream": "main", "after": 7}'])
def test_our_own_attribute_damaged(damage: str) -> None:
    graph = Graph({}, {0: (Compute(id="a", duration_ns=1), Send(id="b", peer=1, size_bytes=1)),
                       1: (Recv(id="c", peer=0, size_bytes=1),)})  # fmt: skip
    written = record.record(graph)
    written[0].nodes[1].attributes[OWN] = damage
    with pytest.raises(BadTrace, match="rank 0: node 2 'b': "):
        replay.graph(written)
    written[0].attributes[OWN] = damage
    with pytest.raises(BadTrace, match="rank 0: metadata: its attribute 'railbed' is damaged"):
        replay.graph(written)


@pytest.mark.parametrize(
    ("node", "damage"),
    [
        (0, {"duration_ns": "soon"}), (0, {"duration_ns": 10**400}), (0, {"duration_ns": -1}), (0, {"stream": 7}),
        (0, {"kind": []}), (0, {"after": True}), (1, {"tag": {}}), (1, {"group": ["g"]}), (2, {"dtype": []}),
        (2, {"size_bytes": "8"}), (2, {"op": {}}), (2, {"collective": 7}),
        (2, {"algorithm": 7}), (2, {"group": []}),
    ],
)  # fmt: skip
def test_what_our_own_attribute_says_is_checked(node: int, damage: dict[str, Any]) -> None:
    both = Collective(id="g", collective="all_reduce", group="g", size_bytes=64)
    graph = Graph({"g": ((0, 1),)}, {0: (Compute(id="a", duration_ns=1), Send(id="b", peer=1, size_bytes=1), both),
                                     1: (Recv(id="c", peer=0, size_bytes=1), both)})  # fmt: skip
    written = record.record(graph)
    its = written[0].nodes[node].attributes
    its[OWN] = json.dumps(json.loads(str(its[OWN])) | damage)
    with pytest.raises(BadTrace, match=f"rank 0: node {node + 1} "):
        replay.graph(written)


@pytest.mark.parametrize(
    "damage",
    ["[" * 100_000, '{"groups": {}, "settings": {}, "ranks": [Infinity]}',
     '{"groups": {}, "settings": {"g": {"traffic_class": "x", "algorithms": {}, "options": {}}}, "ranks": [0]}',
     '{"groups": {}, "settings": {"g": {"traffic_class": 3, "algorithms": 5, "options": {}}}, "ranks": [0]}'],
    ids=["deep", "infinite", "class", "algorithms"],
)  # fmt: skip
def test_our_own_metadata_are_checked(damage: str) -> None:
    with pytest.raises(BadTrace, match="rank 0: metadata: its attribute 'railbed' is damaged"):
        replay.graph({0: Trace(attributes={OWN: damage})})
    node = Node(1, "n", 4, attributes={OWN: damage})
    with pytest.raises(BadTrace, match="rank 0: node 1 'n': its attribute 'railbed' is damaged"):
        replay.graph({0: Trace([node], attributes={OWN: '{"groups": {}, "settings": {}, "ranks": [0]}'})})


def test_waits_through_others_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A few kilobytes could ask for gigabytes: each of many nodes without a task hands on what many wait for."""
    many = [comp(k, 1) for k in range(1, 101)]
    chain = [Node(200 + k, "m", 1, data_deps=[*range(1, 101)] if not k else [199 + k]) for k in range(30)]
    assert len(graph_of([*many, *chain]).tasks[0]) == 100
    got = [Node(k, "r", 6, data_deps=[k - 1] if k > 1 else [], attributes={"comm_src": 1, "comm_size": 8})
           for k in range(1, 401)]  # fmt: skip
    sent = [Node(k, "s", 5, attributes={"comm_dst": 0, "comm_size": 8}) for k in range(1, 401)]
    assert {t.stream for t in graph_of(got, sent).tasks[0]} == {"receive"}
    monkeypatch.setattr(replay, "MOST_KEPT", 8000)
    for nodes in ([*many, *chain], got):
        with pytest.raises(BadTrace, match="rank 0: node .* nodes wait for too many others"):
            graph_of(nodes, sent)


def test_damaged_times_and_sizes_are_refused() -> None:
    with pytest.raises(BadTrace, match="node 1 'c1': it takes more than 10000 s"):
        graph_of([comp(1, 1 << 60)])
    send = Node(5, "s", 5, attributes={"comm_dst": 1, "comm_size": 1 << 60})
    with pytest.raises(BadTrace, match="node 5 's': a message of 1152921504606846976 bytes, and at most 2147483648"):
        graph_of([send], [])
    with pytest.raises(BadTrace, match="a group 'world' that is not all ranks"):
        graph_of([coll(5)], [coll(5)], groups={"world": [0]})
