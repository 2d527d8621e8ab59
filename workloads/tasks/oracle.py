"""When every task of a graph should start and end: the longest path, with durations from elsewhere.

It knows nothing of fabrics and of how graphs are carried out, so it can check that.  Where tasks share no link, they
take as long as alone, and the two agree; where they do, nothing is faster than here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from workloads.tasks.graph import Graph
from workloads.tasks.task import Collective, Compute, Recv, Task

Duration = Callable[[int, Task], float]
"""Rank and task -> ns that it takes alone.  Of a Recv: from the start of its Send to its arrival."""

Ends = Callable[[Collective, Mapping[int, float]], Mapping[int, float]]
"""A collective and when each of its members starts it -> when each ends it."""

Times = dict[tuple[int, str], tuple[float, float]]
"""(rank, id) -> start and end, ns."""


def together(duration: Duration) -> Ends:
    """Members end a collective together, its duration after the last of them has started it."""

    def ends(task: Collective, starts: Mapping[int, float]) -> dict[int, float]:
        last = max(starts.values())
        return {rank: last + duration(rank, task) for rank in starts}

    return ends


def oracle(graph: Graph, duration: Duration, ends: Ends | None = None) -> Times:
    """Start and end of every task, if nothing that runs at the same time is in the way of anything else."""
    ends = ends or together(duration)
    links = graph.links
    started: dict[tuple[int, int], float] = {}
    ended: dict[tuple[int, int], float] = {}
    for node in links.order:
        rank, number = node
        task = graph.tasks[rank][number]
        started[node] = max([task.not_before_ns, *(ended[other] for other in links.before[node])])
        match task:
            case Compute():
                ended[node] = started[node] + task.duration_ns
            case Collective():
                nodes = links.instances[node].nodes
                if all(other in started for other in nodes.values()):  # side by side in the order: this is the last
                    its = ends(task, {r: started[other] for r, other in nodes.items()})
                    ended |= {other: its[r] for r, other in nodes.items()}
            case Recv():
                ended[node] = max(started[node], started[links.sends[node]] + duration(rank, task))
            case _:
                ended[node] = started[node] + duration(rank, task)
    return {(r, graph.tasks[r][n].id): (started[r, n], ended[r, n]) for r, n in links.order}


def step_ns(times: Times) -> float:
    """From the begin to the end of the last task."""
    return max((end for _, end in times.values()), default=0.0)
