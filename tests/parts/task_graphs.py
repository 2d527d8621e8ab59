"""Graphs of tasks for tests: compiled as a plan has them, and run on the fake fabric."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from testbed.experiment import Experiment
from testbed.plan.choose import Chooser
from testbed.plan.steps.plan import plan as plan_of
from tests.parts import fake_run
from tests.parts.fake_fabric import FakeFabric
from tests.parts.fake_run import Line
from workloads import registry
from workloads.base.vocabulary import AUTO
from workloads.tasks.check import Members
from workloads.tasks.graph import Graph, Settings
from workloads.tasks.program import compiled
from workloads.tasks.replay import Tasks
from workloads.tasks.task import Collective


def step(graph: Graph, *, iterations: int = 1, warmup: int = 0, **options: Any) -> Line:
    """The step of a graph whose collectives are done by their default algorithms, unless it names them."""

    def way(task: Collective, members: Members) -> Mapping[str, Any]:
        algorithm = graph.algorithm(task)
        entry = registry.find(task.collective, None if algorithm == AUTO else algorithm)
        told = {key: entry.defaults.get(key) for key in entry.extra} | options
        dims = [len(members)]
        return {"collective": task.collective, "algorithm": entry.name, "ranks": list(members), "dims": dims, **told}

    def marking(its: Settings) -> dict[str, Any]:
        c = its.traffic_class
        return {"dscp": None, "traffic_class": 0} if c is None else {"dscp": c << 3, "traffic_class": c}

    return compiled(graph, way, registry.find, marking, iterations=iterations, warmup=warmup)


def run(
    ranks: int,
    *graphs: Graph,
    seed: int = 0,
    iterations: int = 1,
    options: Mapping[str, Any] | None = None,
    **costs: Any,
) -> list[Line]:
    """The lines of a run in which nothing went wrong; `options`: of all collectives."""
    steps = [step(graph, iterations=iterations, **(options or {})) for graph in graphs]
    fake = FakeFabric(ranks, seed, any_order=seed % 2 == 1)
    lines, errors = fake_run.run(fake, fake_run.plan(ranks, *steps, **costs))
    assert (fake.error, errors) == (None, [])
    assert [line for line in lines if line.get("wrong")] == []
    return lines


def times(lines: list[Line], graph: Graph, step_number: int = 0, iteration: int = 0) -> dict[tuple[int, str], Any]:
    """(rank, id) -> start and end in ns, from the iteration's begin."""
    of = [line for line in lines if (line.get("step"), line.get("iteration")) == (step_number, iteration)]
    begin = {line["rank"]: line["start_ns"] for line in of if line["kind"] == "tasks"}
    found = {}
    for line in of:
        if line["kind"] == "timeline":
            for k, (start, end, wrong) in enumerate(line["times"]):
                task = graph.tasks[line["rank"]][line["first"] + k]
                assert not wrong
                found[line["rank"], task.id] = (start / 1000 - begin[line["rank"]], end / 1000 - begin[line["rank"]])
    return found


def in_order(graph: Graph, found: dict[tuple[int, str], Any]) -> None:
    """Nothing starts before what it waits for has ended."""
    links = graph.links
    for (rank, number), before in links.before.items():
        start, end = found[rank, graph.tasks[rank][number].id]
        assert start <= end
        for r, n in before:
            assert found[r, graph.tasks[r][n].id][1] <= start
    for node, instance in links.instances.items():
        task = graph.tasks[node[0]][node[1]]
        if isinstance(task, Collective) and registry.COLLECTIVES[task.collective].meets:
            begun = [found[r, graph.tasks[r][n].id][0] for r, n in instance.nodes.values()]
            assert found[node[0], task.id][1] >= max(begun)
    for receive, send in links.sends.items():
        sent = found[send[0], graph.tasks[send[0]][send[1]].id][0]
        assert found[receive[0], graph.tasks[receive[0]][receive[1]].id][1] >= sent


def followed_ns(one: Experiment) -> float:
    """Whether cables are shared or not."""
    chooser = Chooser(one)
    tasks = Tasks(plan_of(one).told()["steps"][0], registry.find, one.seed)
    found = tasks.replayed(chooser.ways(range(chooser.fabric.ranks)), chooser.costs)
    assert found is not None
    return found
