"""When the tasks of a planned step should start and end if nothing is in anybody's way: closed forms, longest path."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Any, cast

from testbed.base.errors import InputError
from testbed.plan.offloads import offload_ns
from workloads.base.entry import Algorithm, NoModel, named
from workloads.base.vocabulary import DTYPES
from workloads.collectives.schedule import schedule_of
from workloads.registry import find
from workloads.tasks.graph import Graph
from workloads.tasks.oracle import Times, oracle
from workloads.tasks.task import Collective, Compute, Recv, Send, Task
from workloads.times.case import Case
from workloads.times.expected import expected_ns, replayed_ends
from workloads.times.messages import received_ns, sent_ns

if TYPE_CHECKING:
    from testbed.plan.choose import Chooser


def expected(graph: Graph, step: Mapping[str, Any], chooser: Chooser) -> Times:
    """`step`: what the graph has become in the plan, where every collective has got its algorithm."""
    durations = Durations(graph, step, chooser)
    return oracle(graph, durations, durations.ends)


class Durations:
    """What a rank's task takes by itself, ns.  Of a Recv: from its Send's start to its arrival."""

    def __init__(self, graph: Graph, step: Mapping[str, Any], chooser: Chooser) -> None:
        self._graph, self._chooser, self._seed, self._costs = graph, chooser, chooser.seed, chooser.costs
        self._ways = {
            (rank, task.id): step["ways"][told["way"]]
            for rank, its in graph.tasks.items()
            for task, told in zip(its, step["tasks"].get(str(rank), ()), strict=True)
            if isinstance(task, Collective)
        }
        self._message = cache(self._message_ns)
        self._known: dict[tuple[Any, ...], float] = {}
        self._ended: dict[tuple[Any, ...], list[float] | None] = {}

    def __call__(self, rank: int, task: Task) -> float:
        match task:
            case Compute():
                return task.duration_ns
            case Send():
                return self._message(rank, task.peer, task.size_bytes, sent_ns)
            case Recv():
                return self._message(task.peer, rank, task.size_bytes, received_ns)
            case Collective():
                return self._collective(rank, task)
        raise TypeError(f"{type(task).__name__} is no kind of task")

    def _message_ns(self, source: int, target: int, size_bytes: int, done: Callable[..., float]) -> float:
        path = self._chooser.ways([source, target]).path([(0, 1)])
        return self._costs.post_ns + done(size_bytes, path, self._costs) + self._costs.wake_ns

    def ends(self, task: Collective, starts: Mapping[int, float]) -> Mapping[int, float]:
        """When each rank is through: together, or, where some need not wait for others, each in its own time."""
        way = self._way(task, starts)
        entry = find(way["collective"], way["algorithm"])
        late = way.get("parts") and len(set(starts.values())) > 1  # who has nothing to send may have begun before
        if entry.schedule and (late or not entry.collective.meets):
            ranks, first = way["ranks"], min(starts.values())
            begun = tuple(round(starts[r] - first, 3) for r in ranks)
            ended = self._apart(self._like(way, task), task, way, begun)
            if ended is not None:
                return {r: first + end for r, end in zip(ranks, ended, strict=True)}
        last = max(starts.values())
        return {r: last + self(r, task) for r in starts}

    def arrived(self, task: Collective, ranks: Sequence[int], times: int = 1) -> float:
        """How long an exchange, or so many at a time, takes until the last of some ranks has its part.

        All begin at a time.  A task that is not in the graph goes like the one of its name that is, with its own parts.
        """
        task = replace(task, size_bytes=times * task.size_bytes)
        ends = self.ends(task, dict.fromkeys(self._way(task, ranks)["ranks"], 0.0))
        return max(ends[r] for r in ranks)

    def _way(self, task: Collective, ranks: Iterable[int]) -> Mapping[str, Any]:
        way = self._ways[next(iter(ranks)), task.id]
        return way if task.parts is None else {**way, "parts": task.parts}

    def _apart(
        self, like: tuple[Any, ...], task: Collective, way: Mapping[str, Any], begun: tuple[float, ...]
    ) -> list[float] | None:
        if (like, begun) not in self._ended:
            entry = find(way["collective"], way["algorithm"])
            case = self._case(entry, task, way)
            self._ended[like, begun] = replayed_ends(case, schedule_of(entry), begun)
        return self._ended[like, begun]

    def _like(self, way: Mapping[str, Any], task: Collective) -> tuple[Any, ...]:
        what = (way["collective"], way["algorithm"], tuple(way["ranks"]))
        return *what, task.group, task.size_bytes, task.dtype, task.parts

    def _case(self, entry: Algorithm, task: Collective, way: Mapping[str, Any]) -> Case:
        ranks, width = way["ranks"], DTYPES[task.dtype]
        ways = self._chooser.ways(ranks)
        return Case.of(entry, len(ranks), task.size_bytes, width, way, self._seed, self._costs, ways)

    def _along_rails(self, entry: Algorithm, task: Collective, way: Mapping[str, Any]) -> float:
        """As the first job of the fabric."""
        chooser, told = self._chooser, {**way, "dtype": task.dtype, "op": task.op}
        try:
            return offload_ns(chooser, chooser.basis, entry, way["ranks"], task.size_bytes, told, ({},), 1)
        except NoModel as none:
            raise InputError(none.what, chooser.experiment.place("workload"), none.hint) from None

    def _collective(self, rank: int, task: Collective) -> float:
        way = self._way(task, (rank,))
        ranks, key = way["ranks"], self._like(way, task)
        if key not in self._known:
            entry = find(way["collective"], way["algorithm"])
            if entry.schedule:
                self._known[key] = expected_ns(entry, self._case(entry, task, way))
            elif entry.accelerators and entry.layout == "rails":
                self._known[key] = self._along_rails(entry, task, way)
            else:
                path = self._chooser.ways(ranks).path([(k, (k + 1) % len(ranks)) for k in range(len(ranks))])
                self._known[key] = cast(float, named(entry.time)(len(ranks), task.size_bytes, path, self._costs))
        return self._known[key]
