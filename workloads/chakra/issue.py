"""In which order a rank's tasks stand, so that whatever is ready may go first and nobody waits for ever.

The usual feeder keeps one computation on the CPU, one on the GPU and one communication busy, and gives each whatever is
ready, the least id first.  So do streams that are unordered: computations stand in the order of their recorded starts
and ids, which decides between those that are ready.  Communications stand in the order in which they would begin if
they took no time, ranks being alike: nothing comes before what it waits for, at whatever rank.  A collective waits for
the communications before it, and as those never wait for it, it comes to its turn at all of its ranks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from workloads.tasks.check import Members, order_of
from workloads.tasks.graph import Graph
from workloads.tasks.oracle import oracle
from workloads.tasks.task import Compute, Recv, Send, Task

CPU, GPU, COMM = "cpu", "gpu", "comm"
STREAMS = frozenset({CPU, GPU, COMM})


def in_order(
    groups: Mapping[str, tuple[Members, ...]], tasks: Mapping[int, tuple[Task, ...]], key: Callable[[int, Task], Any]
) -> Graph:
    """Tasks that match each other by their order, in the order of issue; `key` says which of two is first.

    Raises BadGraph.
    """
    apart = {rank: tuple(replace(task, stream=_alone(task)) for task in listed) for rank, listed in tasks.items()}
    free = Graph(dict(groups), apart, unordered=STREAMS)
    times, links = oracle(free, lambda rank, task: 0.0), free.links

    def first(node: tuple[int, int]) -> tuple[Any, ...]:
        task = tasks[node[0]][node[1]]
        return times[node[0], task.id][0], key(node[0], task)

    ordered: dict[int, list[Task]] = {}
    for rank, listed in tasks.items():
        computes = ((key(rank, task), number) for number, task in enumerate(listed) if isinstance(task, Compute))
        ordered[rank] = [listed[number] for _, number in sorted(computes)]
    for rank, number in order_of(tasks, links.before, links.instances, links.sends, first):
        if not isinstance(task := tasks[rank][number], Compute):
            ordered[rank].append(task)
    return Graph(free.groups, {rank: tuple(listed) for rank, listed in ordered.items()}, unordered=STREAMS)


def _alone(task: Task) -> str:
    """The stream of a task that nothing else of its rank holds up; messages of one tag match in order."""
    if isinstance(task, Compute):
        return task.stream
    if isinstance(task, Send | Recv):
        return f"{type(task).__name__} {task.peer} {task.tag}"
    return f"collective {task.id}"
