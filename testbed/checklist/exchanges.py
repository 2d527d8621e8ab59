"""Who sends what to whom: the pairs of ranks of each step of a workload, by the same schedules that the ranks follow.

Of algorithms whose messages the network forks or adds up, pairs say nothing: these have none.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from testbed.experiment.blocks.layout import group
from testbed.plan import plan as planning
from topologies.ranks.grid import NoGrid
from workloads.base.entry import Algorithm
from workloads.base.vocabulary import AUTO, DTYPES
from workloads.collectives.schedule import OUTPUT, Recv, Send, places, schedule_of, steps
from workloads.collectives.shape import shape_of
from workloads.registry import choices, find

if TYPE_CHECKING:
    from testbed.experiment import Experiment
    from testbed.experiment.blocks.steps import Step

Pair = tuple[int, int]
LATENCY = frozenset({"ping_pong", "barrier"})
"""Collectives of which small messages are the point."""


@dataclass(frozen=True)
class Exchange:
    """What some ranks do together at the same time, at the largest size of a step."""

    path: tuple[str | int, ...]  # of what is written in the file
    name: str
    ranks: tuple[int, ...]
    sent: Mapping[Pair, int] = field(default_factory=dict)  # payload bytes from rank to rank
    largest: int = 0  # bytes of its largest message
    memory: int = 0  # bytes that its hungriest rank registers
    small: bool = False  # small messages are its point
    drawn: bool = False  # by chance: nobody chose the pairs
    load: float = 1.0  # share of its line rate that a sender offers

    @property
    def everyone(self) -> bool:
        """Whether each rank sends to each other one: no order of ranks changes what crosses."""
        n = len(self.ranks)
        return n > 2 and len(self.sent) == n * (n - 1)


def exchanges(experiment: Experiment) -> list[Exchange]:
    """All of a workload."""
    told = [_by_one_algorithm(step, experiment) for step in experiment.workload]
    planned = planning.plan(experiment.model_copy(update={"workload": told}))
    found: list[Exchange] = []
    for number, step in zip(_numbers(experiment), planned["steps"], strict=True):
        if step["kind"] == "flows":
            found.append(_flows(number, step["flows"], experiment.workload[number]))
        elif step["kind"] == "collective":
            found += _collective(number, step, planned["ranks"], experiment.seed + number)
        elif step["kind"] == "tasks":
            found += _tasks(number, step, experiment.seed)
    return found


def _numbers(experiment: Experiment) -> Iterator[int]:
    """Of which step of the workload each step of the plan comes: a training step by fewer layers is two of them."""
    for number, step in enumerate(experiment.workload):
        yield from [number] * (2 if step.kind == "train" and step.train.scale else 1)


def _tasks(number: int, step: Mapping[str, Any], seed: int) -> Iterator[Exchange]:
    """What each group does in its largest collective of each kind, and all messages of each group of senders."""
    largest: dict[tuple[int, int], Mapping[str, Any]] = {}
    messages: dict[int, Counter[Pair]] = {}
    longest: Counter[int] = Counter()
    for rank, orders in step["tasks"].items():
        for order in orders:
            if order["do"] == "collective":
                key = (order["communicator"], order["way"])
                if key not in largest or largest[key]["size_bytes"] < order["size_bytes"]:
                    largest[key] = order
            elif order["do"] == "send":
                pairs = messages.setdefault(order["lane"], Counter())
                pairs[int(rank), order["peer"]] += order["size_bytes"]
                longest[order["lane"]] = max(longest[order["lane"]], order["size_bytes"])
    for (communicator, way), order in largest.items():
        told, its = step["ways"][way], step["communicators"][communicator]
        entry = find(told["collective"], told["algorithm"])
        one = {**told, "dtype": order["dtype"]}
        made = _one(("workload", number), entry, one, order["size_bytes"], len(told["ranks"]), seed)
        yield replace(made, name=f"{entry} of group {its['group']}")
    for lane, sent in messages.items():
        ranks = tuple(sorted({rank for pair in sent for rank in pair}))
        yield Exchange(("workload", number), "messages", ranks, sent, longest[lane])


def _by_one_algorithm(step: Step, experiment: Experiment) -> Step:
    """For `auto` the first that these ranks can carry out: to say which is fastest may take minutes."""
    if step.kind != "collective" or step.algorithm != AUTO:
        return step
    for entry in choices(step.collective):
        try:
            group(entry, step.ranks, experiment.build_fabric())
        except NoGrid:
            continue
        return step.model_copy(update={"algorithm": entry.name})
    return step


def _flows(number: int, flows: Sequence[Mapping[str, Any]], step: Step) -> Exchange:
    drawn = step.kind == "load"
    load = step.load.load if step.kind == "load" and step.load.pattern != "burst" else 1.0
    sent: Counter[Pair] = Counter()
    for flow in flows:
        sent[flow["from"], flow["to"]] += flow["size_bytes"]
    ranks = tuple(sorted({rank for pair in sent for rank in pair}))
    largest = max(flow["size_bytes"] for flow in flows)
    return Exchange(("workload", number), f"{len(flows)} flows", ranks, sent, largest, drawn=drawn, load=load)


def _collective(number: int, step: Mapping[str, Any], ranks: int, seed: int) -> Iterator[Exchange]:
    size = max(step["sizes"])
    path: tuple[str | int, ...] = ("workload", number)
    entry = find(step["collective"], step["algorithm"])
    if "groups" in step:
        for k, its in enumerate(step["groups"]):
            yield _one((*path, "groups", k), entry, {**step, **its}, size, ranks, seed)
    else:
        yield _one(path, entry, step, size, ranks, seed)


def _one(
    path: tuple[str | int, ...], entry: Algorithm, step: Mapping[str, Any], size: int, ranks: int, seed: int
) -> Exchange:
    members = tuple(step.get("ranks") or range(ranks))
    sent, largest, memory = between(entry, len(members), size, step["dtype"], step, seed)
    by_rank = {(members[a], members[b]): n for (a, b), n in sent.items()}
    small = entry.collective.name in LATENCY
    return Exchange(path, str(entry), members, by_rank, largest, memory, small=small)


def between(
    entry: Algorithm, n: int, size: int, dtype: str, options: Mapping[str, Any], seed: int
) -> tuple[dict[Pair, int], int, int]:
    """Of n ranks, by their index: bytes from one to another; the largest message; memory of the hungriest."""
    width = DTYPES[dtype]
    if not entry.schedule:
        ring = {(i, (i + 1) % n): 2 * size * (n - 1) // n for i in range(n)} if entry.engines else {}
        return ring, size, 2 * size
    shape = shape_of(entry, n, size, width, options, seed)
    chunk = shape.chunk
    whole = replace(shape, chunk=None)
    sent: Counter[Pair] = Counter()
    largest = memory = 0
    for index in range(n):
        program = schedule_of(entry)(whole, index)
        output = 0
        for step in steps(program):
            if isinstance(step, Send):
                sent[index, step.peer] += (step.stop - step.start) * width
                largest = max(largest, (step.stop - step.start) * width)
            elif isinstance(step, Recv) and step.into == OUTPUT:
                output = max(output, step.stop)
        memory = max(memory, (whole.length(index) + places(program)[1] + output) * width)
    return dict(sent), min(largest, chunk * width) if chunk else largest, memory
