"""Who sends what to whom in each step of a workload."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from testbed.checklist.exchange import LATENCY, Exchange, Pair, between
from testbed.checklist.graph_exchanges import of_tasks
from testbed.experiment.steps.flows import FlowsStep
from testbed.plan.steps import plan as planning
from testbed.plan.steps.kinds import graph_of
from workloads.base.entry import Algorithm
from workloads.registry import find

if TYPE_CHECKING:
    from testbed.experiment import Experiment
    from testbed.experiment.steps.step import Step


def exchanges(experiment: Experiment) -> list[Exchange]:
    """All of a workload."""
    found: list[Exchange] = []
    for number, step in enumerate(experiment.workload):
        if (graph := graph_of(step, experiment)) is not None:
            found += of_tasks(number, step, graph, experiment)
            continue
        # Flows are drawn from the number of the step: the others stay, and are as short as can be.
        told = [s.quickly(experiment.build_fabric()) if s is step else _NOTHING for s in experiment.workload]
        planned = planning.plan(experiment.model_copy(update={"workload": told}))
        its = planned["steps"][number]
        if its["kind"] == "flows":
            found.append(_of_nics(_flows(number, its["flows"], step), planned["ranks"]))
        else:
            its_own = _collective(number, its, planned["ranks"], experiment.seed + number)
            found += (_of_nics(one, planned["ranks"]) for one in its_own)
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


_NOTHING = FlowsStep.model_validate({"flows": [{"from": 0, "to": 1, "size": "1B"}]})


def _flows(number: int, flows: Sequence[Mapping[str, Any]], step: Step) -> Exchange:
    drawn, load = step.offered is not None, step.offered or 1.0
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
