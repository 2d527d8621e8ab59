"""When every task of a graph should start and end: the longest path, with durations from elsewhere.

It knows nothing of fabrics and of how graphs are carried out, so it can check that.  Where tasks share no link, they
take as long as alone, and the two agree; where they do, nothing is faster than here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from heapq import heappop, heappush

from workloads.tasks.check import Node
from workloads.tasks.graph import Graph
from workloads.tasks.task import Collective, Compute, Recv, Task
from workloads.tasks.turns import Turns

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
    if graph.unordered:
        return _ByTime(graph, duration, ends).times()
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
                    by_rank = ends(task, {r: started[other] for r, other in nodes.items()})
                    ended |= {other: by_rank[r] for r, other in nodes.items()}
            case Recv():
                ended[node] = max(started[node], started[links.sends[node]] + duration(rank, task))
            case _:
                ended[node] = started[node] + duration(rank, task)
    return {(r, graph.tasks[r][n].id): (started[r, n], ended[r, n]) for r, n in links.order}


_ENDS, _MAY_START = range(2)


class _ByTime:
    """From event to event: which task of an unordered stream is next depends on when others end."""

    def __init__(self, graph: Graph, duration: Duration, ends: Ends) -> None:
        self.graph, self.duration, self.ends, self.links = graph, duration, ends, graph.links
        self.waits = {node: len(others) for node, others in self.links.before.items()}
        self.followers: dict[Node, list[Node]] = {}
        for node, others in self.links.before.items():
            for other in others:
                self.followers.setdefault(other, []).append(node)
        self.receives = {send: receive for receive, send in self.links.sends.items()}
        self.started: dict[Node, float] = {}
        self.ended: dict[Node, float] = {}
        self.turns = Turns[tuple[int, str], Node]()
        self.agenda: list[tuple[float, int, Node]] = []

    def times(self) -> Times:
        tasks = self.graph.tasks
        for node, count in self.waits.items():
            if not count:
                self._wait(node, 0.0)
        while self.agenda:
            now, event, node = heappop(self.agenda)
            if event == _ENDS:
                self._end(now, node)
            elif self._in_turn(node):
                self.started[node] = now
                self._start(now, node, tasks[node[0]][node[1]])
        return {(r, tasks[r][n].id): (self.started[r, n], self.ended[r, n]) for r, n in self.links.order}

    def _wait(self, node: Node, now: float) -> None:
        heappush(self.agenda, (max(now, self.graph.tasks[node[0]][node[1]].not_before_ns), _MAY_START, node))

    def _in_turn(self, node: Node) -> bool:
        stream = self.graph.tasks[node[0]][node[1]].stream
        return stream not in self.graph.unordered or self.turns.taken((node[0], stream), node)

    def _start(self, now: float, node: Node, task: Task) -> None:
        match task:
            case Compute():
                self._ends(node, now + task.duration_ns)
            case Collective():
                nodes = self.links.instances[node].nodes
                if all(other in self.started for other in nodes.values()):
                    by_rank = self.ends(task, {r: self.started[other] for r, other in nodes.items()})
                    for rank, other in nodes.items():
                        self._ends(other, by_rank[rank])
            case Recv():
                if (send := self.links.sends[node]) in self.started:
                    self._ends(node, max(now, self.started[send] + self.duration(node[0], task)))
            case _:
                self._ends(node, now + self.duration(node[0], task))
                receive = self.receives[node]
                if receive in self.started:
                    receiving = self.graph.tasks[receive[0]][receive[1]]
                    self._ends(receive, now + self.duration(receive[0], receiving))

    def _ends(self, node: Node, time: float) -> None:
        heappush(self.agenda, (time, _ENDS, node))

    def _end(self, now: float, node: Node) -> None:
        self.ended[node] = now
        stream = self.graph.tasks[node[0]][node[1]].stream
        if stream in self.graph.unordered and (following := self.turns.left((node[0], stream))) is not None:
            self._wait(following, now)
        for follower in self.followers.get(node, ()):
            self.waits[follower] -= 1
            if not self.waits[follower]:
                self._wait(follower, now)


def step_ns(times: Times) -> float:
    """From the begin to the end of the last task."""
    return max((end for _, end in times.values()), default=0.0)
