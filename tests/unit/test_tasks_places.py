"""Where messages land: one after the other in one place only if it cannot matter, by walks over the graph."""

from __future__ import annotations

import networkx as nx
import pytest

from tests.parts import task_graphs
from tests.parts.training_steps import GPU, SMALL, constant, graph_of
from workloads.steps.plan.parallel import Parallel
from workloads.steps.plan.training import Training
from workloads.tasks.check import Node
from workloads.tasks.graph import Graph
from workloads.tasks.places import aligned, places
from workloads.tasks.task import Collective, Recv, Send, Task

SIZE = 1000


def landing(graph: Graph, meets: bool = True) -> dict[Node, int]:
    return places(graph, lambda _: meets)


def needed(graph: Graph, meets: bool = True) -> int:
    """Bytes of the way that needs most."""
    return max(at + aligned(graph.tasks[r][n].size_bytes) for (r, n), at in landing(graph, meets).items())  # type: ignore[attr-defined]


def moments(graph: Graph) -> nx.DiGraph:
    """Begins and ends of tasks, and which cannot be before which."""
    walk = nx.DiGraph()
    for node in graph.links.order:
        walk.add_edge((*node, "begin"), (*node, "end"))
        for other in graph.links.before[node]:
            walk.add_edge((*other, "end"), (*node, "begin"))
    for receive, send in graph.links.sends.items():
        walk.add_edge((*send, "begin"), (*receive, "end"))
    for node, instance in graph.links.instances.items():
        for other in instance.nodes.values():
            walk.add_edge((*other, "begin"), (*node, "end"))
    return walk


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b", "zero_bubble", "interleaved", "zb_v", "dualpipe"])
@pytest.mark.parametrize("tensor", [1, 2])
def test_who_shares_a_place_cannot_meet(schedule: str, tensor: int) -> None:
    t = Training(
        model=SMALL,
        gpu=GPU,
        parallel=Parallel(pipeline=4, tensor=tensor),
        count=8,
        schedule=schedule,
        chunks=2 if schedule in ("interleaved", "zb_v", "dualpipe") else 1,
    )
    graph = graph_of(t, constant(100, 200, 100))
    walk, at = moments(graph), landing(graph)
    receives = {send: receive for receive, send in graph.links.sends.items()}
    behind = {node: nx.descendants(walk, (*receives[node], "end")) for node in at}
    shared = 0
    for one, first in at.items():
        for other, second in at.items():
            task, its = (graph.tasks[r][n] for r, n in (one, other))
            assert isinstance(task, Send) and isinstance(its, Send)
            if one >= other or one[0] != other[0] or (task.peer, task.group) != (its.peer, its.group):
                continue
            if first < second + its.size_bytes and second < first + task.size_bytes:
                assert (*other, "begin") in behind[one] or (*one, "begin") in behind[other]
                shared += 1
    assert shared or schedule == "gpipe"


def test_memory_is_for_what_is_under_way() -> None:
    """1F1B: a stage sends no more than the pipeline is long before an answer comes."""

    def most(count: int) -> int:
        return needed(
            graph_of(Training(model=SMALL, gpu=GPU, parallel=Parallel(pipeline=4), count=count), constant(100, 200))
        )

    one = most(1)
    assert most(32) == most(64) <= 4 * one


def exchange(*between: Task) -> Graph:
    """Four messages from rank 0 to rank 1, and what both do after each."""
    tasks: dict[int, list[Task]] = {0: [], 1: []}
    for k in range(4):
        tasks[0].append(Send(id=f"m{k}", peer=1, size_bytes=SIZE))
        tasks[1].append(Recv(id=f"m{k}", peer=0, size_bytes=SIZE))
        for rank in tasks:
            tasks[rank] += [type(task)(**{**vars(task), "id": f"{task.id}{k}"}) for task in between]
    return Graph({"all": ((0, 1),)}, {rank: tuple(its) for rank, its in tasks.items()})


def test_nothing_is_known_without_an_answer() -> None:
    """That a message is acknowledged does not say that it was received."""
    assert sorted(landing(exchange()).values()) == [k * aligned(SIZE) for k in range(4)]


def test_who_meets_has_received() -> None:
    one = Collective(id="sum", collective="all_reduce", group="all", size_bytes=64)
    graph = exchange(one)
    assert needed(graph) == aligned(SIZE)
    assert needed(graph, meets=False) == 4 * aligned(SIZE)
    task_graphs.run(2, graph, iterations=2)


def test_what_is_left_out_in_some_iterations_answers_nothing() -> None:
    graph = exchange(Collective(id="sum", collective="all_reduce", group="all", size_bytes=64))
    tasks = {rank: (*its, Send(id="last", peer=1 - rank, size_bytes=1, every=2)) for rank, its in graph.tasks.items()}
    tasks = {rank: (*its, Recv(id="from", peer=1 - rank, size_bytes=1, every=2)) for rank, its in tasks.items()}
    assert needed(Graph(graph.groups, tasks)) > 4 * aligned(SIZE)


def test_a_larger_one_does_not_fit() -> None:
    """Sizes that grow: each place is too small for the next."""
    graph = exchange(Collective(id="sum", collective="all_reduce", group="all", size_bytes=64))
    sizes = iter([100, 200, 100, 300] * 2)
    tasks = {
        rank: tuple(type(t)(**{**vars(t), "size_bytes": next(sizes)}) if isinstance(t, Send | Recv) else t for t in its)
        for rank, its in graph.tasks.items()
    }
    at = landing(Graph(graph.groups, tasks))
    assert sorted(at.values()) == [0, 0, 128, 128 + 256]
