"""Who sends what to whom in a step of tasks: one exchange for each tuple of ranks of each group."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import cache
from typing import TYPE_CHECKING, Any

from testbed.checklist.exchange import LATENCY, Exchange, Pair, between
from testbed.experiment.blocks.layout import group
from testbed.experiment.steps.graphs import as_step
from topologies.ranks.grid import NoGrid
from workloads.base.vocabulary import AUTO
from workloads.registry import COLLECTIVES, choices, find
from workloads.tasks.check import Members
from workloads.tasks.graph import Graph
from workloads.tasks.task import Collective, Send

if TYPE_CHECKING:
    from testbed.experiment import Experiment
    from testbed.experiment.steps.step import Step

MESSAGES = "messages"


def of_tasks(number: int, step: Step, graph: Graph, experiment: Experiment) -> Iterator[Exchange]:
    """Of a step of the workload that becomes a graph of tasks."""
    path: tuple[str | int, ...] = ("workload", number)
    counted = _Counted(graph, experiment)
    for name, tuples in graph.groups.items():
        where = (*path, *step.place_of_group(name))
        for members in tuples:
            if members in counted.sent.get(name, {}):
                largest, memory = counted.largest[name], counted.memory(name, members) // step.scaled_by
                yield Exchange(where, f"group {name!r}", members, counted.sent[name][members], largest, memory,
                               small=not largest, group=name, times=counted.times[name, members])  # fmt: skip
    if counted.messages:
        ranks = tuple(sorted({rank for pair in counted.messages for rank in pair}))
        yield Exchange(
            (*path, step.kind), MESSAGES, ranks, counted.messages, counted.largest[MESSAGES], drawn=True, group=MESSAGES
        )


class _Counted:
    """Bytes from rank to rank, by group and tuple; and messages of ranks to ranks."""

    def __init__(self, graph: Graph, experiment: Experiment) -> None:
        self._graph, self._experiment = graph, experiment
        self._of_like = cache(self._between)
        self.sent: dict[str, dict[Members, Counter[Pair]]] = {}
        self.messages: Counter[Pair] = Counter()
        self.largest: Counter[str] = Counter()
        self.times: Counter[tuple[str, Members]] = Counter()
        self._memory: dict[tuple[str, Members], dict[str, list[tuple[str, int]]]] = {}  # by stream of the first member
        for rank, tasks in graph.tasks.items():
            for task in tasks:
                if isinstance(task, Collective):
                    members = tuple(graph.members(rank, task))
                    if rank == members[0] and task.collective not in LATENCY:
                        self._add(task, members)
                elif isinstance(task, Send):
                    self.messages[rank, task.peer] += task.size_bytes
                    self.largest[MESSAGES] = max(self.largest[MESSAGES], task.size_bytes)

    def _add(self, task: Collective, members: Members) -> None:
        sent, largest, memory = self._of_like(task.alike, members)
        its = self.sent.setdefault(task.group, {}).setdefault(members, Counter())
        for pair, nbytes in sent.items():
            its[pair] += nbytes
        self.largest[task.group] = max(self.largest[task.group], largest)
        self.times[task.group, members] += 1
        of_group = self._memory.setdefault((task.group, members), {})
        of_group.setdefault(task.stream, []).append((task.collective, memory))

    def memory(self, group: str, members: Members) -> int:
        """What a rank registers: for each collective, or for two of a stream (_slots of workloads/tasks/program.py)."""
        nbytes = 0
        for collectives in self._memory[group, members].values():
            each = [its for _, its in collectives]
            take_turns = all(COLLECTIVES[name].meets for name, _ in collectives)
            nbytes += max(each[::2]) + max(each[1::2], default=0) if take_turns else sum(each)
        return nbytes

    def _between(self, like: tuple[Any, ...], members: Members) -> tuple[dict[Pair, int], int, int]:
        """By the algorithm that is named, or the first that these ranks can carry out."""
        collective, name, algorithm, size, dtype, op, parts = like
        task = Collective(
            id="-", collective=collective, group=name, size_bytes=size, dtype=dtype, op=op, algorithm=algorithm,
            parts=parts,
        )  # fmt: skip
        step, fabric = as_step(self._graph, task), self._experiment.build_fabric()
        everybody = list(members) == list(range(fabric.ranks))  # then their order is the algorithm's, as in the plan
        entries = choices(collective) if step.algorithm == AUTO else [find(collective, step.algorithm)]
        for entry in entries:
            try:
                told = group(entry, None if everybody else members, fabric)
            except NoGrid:
                continue
            order = told["ranks"] or list(members)
            options = {key: getattr(step, key) for key in entry.extra if hasattr(step, key)} | told
            sent, largest, memory = between(entry, len(members), size, dtype, options, self._experiment.seed)
            return {(order[a], order[b]): n for (a, b), n in sent.items()}, largest, memory
        return {}, 0, 0
