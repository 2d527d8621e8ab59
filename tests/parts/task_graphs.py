"""Graphs of tasks for tests: compiled as a plan has them, and run on the fake fabric."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.parts import fake_run
from tests.parts.fake_fabric import FakeFabric
from tests.parts.fake_run import Line
from workloads import registry
from workloads.base.vocabulary import AUTO
from workloads.tasks.check import Members
from workloads.tasks.graph import Graph, Settings
from workloads.tasks.program import compiled
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
