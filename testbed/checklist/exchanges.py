"""Who sends what to whom in each step of a workload."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from testbed.checklist.exchange import LATENCY, Exchange, Pair, between
from testbed.checklist.graph_exchanges import of_tasks
from testbed.plan.steps.kinds import graph_of, steps_of
from testbed.plan.steps.planned import Planned, PlannedCollective, PlannedFlows
from testbed.plan.steps.planner import Planner
from workloads.base.entry import Algorithm
from workloads.registry import find

if TYPE_CHECKING:
    from testbed.experiment import Experiment
    from testbed.experiment.steps.step import Step


def exchanges(experiment: Experiment) -> list[Exchange]:
    """All of a workload."""
    found: list[Exchange] = []
    planner = Planner(experiment)
    for number, step in enumerate(experiment.workload):
        if (graph := graph_of(step, planner)) is not None:
            found += of_tasks(number, step, graph, experiment)
            continue
        for its in steps_of(step.quickly(planner.fabric), planner):
            of_it = _OF[type(its)](number, step, its, planner.fabric.ranks, experiment.seed + number)
            found += (_of_nics(one, planner.fabric.ranks) for one in of_it)
    return found


def _of_nics(one: Exchange, ranks: int) -> Exchange:
    """What compute complexes send and receive passes their NIC's cable, as what the rank there does."""
    if max(one.ranks, default=0) < ranks:
        return one
    sent: Counter[Pair] = Counter()
    for (a, b), nbytes in one.sent.items():
        if a % ranks != b % ranks:
            sent[a % ranks, b % ranks] += nbytes
    return replace(one, ranks=tuple(sorted({rank % ranks for rank in one.ranks})), sent=sent)


def _flows(number: int, step: Step, its: PlannedFlows, ranks: int, seed: int) -> Iterator[Exchange]:
    drawn, load = step.offered is not None, step.offered or 1.0
    sent: Counter[Pair] = Counter()
    for flow in its.flows:
        sent[flow.source, flow.target] += flow.size_bytes
    ends = tuple(sorted(its.ends(ranks)))
    largest = max(flow.size_bytes for flow in its.flows)
    yield Exchange(("workload", number), f"{len(its.flows)} flows", ends, sent, largest, drawn=drawn, load=load)


def _collective(number: int, step: Step, its: PlannedCollective, ranks: int, seed: int) -> Iterator[Exchange]:
    path: tuple[str | int, ...] = ("workload", number)
    entry, size, told = find(its.collective, its.algorithm), max(its.sizes), its.told()
    for k, group in enumerate(its.groups):
        yield _one((*path, "groups", k), entry, {**told, **group}, size, ranks, seed)
    if not its.groups:
        yield _one(path, entry, told, size, ranks, seed)


_OF: dict[type[Planned], Callable[..., Iterator[Exchange]]] = {PlannedFlows: _flows, PlannedCollective: _collective}


def _one(
    path: tuple[str | int, ...], entry: Algorithm, step: Mapping[str, Any], size: int, ranks: int, seed: int
) -> Exchange:
    members = tuple(step.get("ranks") or range(ranks))
    sent, largest, memory = between(entry, len(members), size, step["dtype"], step, seed)
    by_rank = {(members[a], members[b]): n for (a, b), n in sent.items()}
    small = entry.collective.name in LATENCY
    return Exchange(path, str(entry), members, by_rank, largest, memory, small=small)
