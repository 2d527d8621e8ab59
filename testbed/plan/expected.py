"""When the tasks of a planned step should start and end if nothing is in anybody's way: closed forms, longest path."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, cast

from testbed.plan.choose import Chooser
from testbed.plan.ideal import costs_of
from workloads.base.entry import named
from workloads.base.vocabulary import DTYPES
from workloads.registry import find
from workloads.tasks.graph import Graph
from workloads.tasks.oracle import Times, oracle
from workloads.tasks.task import Collective, Compute, Recv, Send, Task
from workloads.times.case import Case
from workloads.times.expected import expected_ns
from workloads.times.messages import received_ns, sent_ns

if TYPE_CHECKING:
    from testbed.experiment import Experiment
    from topologies import Fabric


def expected(graph: Graph, step: Mapping[str, Any], experiment: Experiment, fabric: Fabric) -> Times:
    """`step`: what the graph has become in the plan, where every collective has got its algorithm."""
    return oracle(graph, Durations(graph, step, experiment, fabric))


class Durations:
    """What a rank's task takes by itself, ns.  Of a Recv: from its Send's start to its arrival."""

    def __init__(self, graph: Graph, step: Mapping[str, Any], experiment: Experiment, fabric: Fabric) -> None:
        self._graph, self._seed = graph, experiment.seed
        self._chooser, self._costs = Chooser(experiment, fabric), costs_of(experiment)
        self._ways = {
            (rank, task.id): step["ways"][told["way"]]
            for rank, its in graph.tasks.items()
            for task, told in zip(its, step["tasks"].get(str(rank), ()), strict=True)
            if isinstance(task, Collective)
        }
        self._message = cache(self._message_ns)
        self._known: dict[tuple[Any, ...], float] = {}

    def __call__(self, rank: int, task: Task) -> float:
        match task:
            case Compute():
                return task.duration_ns
            case Send():
                return self._message(rank, task.peer, task.size_bytes, True)
            case Recv():
                return self._message(task.peer, rank, task.size_bytes, False)
            case Collective():
                return self._collective(rank, task)
        raise TypeError(f"{type(task).__name__} is no kind of task")

    def _message_ns(self, source: int, target: int, size_bytes: int, sent: bool) -> float:
        path = self._chooser.ways([source, target]).path([(0, 1)])
        done = sent_ns if sent else received_ns
        return self._costs.post_ns + done(size_bytes, path, self._costs) + self._costs.wake_ns

    def _collective(self, rank: int, task: Collective) -> float:
        way = self._ways[rank, task.id]
        ranks = way["ranks"]
        key = (way["collective"], way["algorithm"], tuple(ranks), task.size_bytes, task.dtype)
        if key not in self._known:
            entry = find(way["collective"], way["algorithm"])
            ways = self._chooser.ways(ranks)
            if entry.schedule:
                width = DTYPES[task.dtype]
                case = Case.of(entry, len(ranks), task.size_bytes, width, way, self._seed, self._costs, ways)
                self._known[key] = expected_ns(entry, case)
            else:
                path = ways.path([(k, (k + 1) % len(ranks)) for k in range(len(ranks))])
                self._known[key] = cast(float, named(entry.time)(len(ranks), task.size_bytes, path, self._costs))
        return self._known[key]
