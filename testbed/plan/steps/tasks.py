"""From a graph of tasks to a step of the plan: how each group does its collectives, and how its packets are marked.

Every step that is made of tasks comes through here, whatever it was built from.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from testbed.base.errors import InputError
from testbed.experiment.blocks.fabric import dscp_of
from testbed.experiment.blocks.layout import group
from testbed.experiment.steps.graphs import as_step
from testbed.plan.steps.planned import Planned, PlannedTasks
from topologies.ranks.grid import NoGrid
from workloads.base.vocabulary import AUTO
from workloads.registry import by_library, find
from workloads.tasks.check import BadGraph, Members
from workloads.tasks.graph import Graph, Settings
from workloads.tasks.program import compiled
from workloads.tasks.task import Collective

if TYPE_CHECKING:
    from testbed.experiment import CollectiveStep
    from testbed.experiment.blocks.transport import Own
    from testbed.experiment.steps.graphs import GraphStep
    from testbed.plan.steps.planner import Planner
    from topologies import Fabric


def task_steps(step: GraphStep, planner: Planner) -> list[Planned]:
    """Of a graph that is written, or read from a file."""
    iterations, warmup = step.repeats
    graph = task_graph(step, planner)
    return [planned(graph, planner, iterations=iterations, warmup=warmup, above=step.transport)]


def task_graph(step: GraphStep, planner: Planner) -> Graph:
    return step.graph(planner.fabric.ranks)


def planned(
    graph: Graph, planner: Planner, *, iterations: int, warmup: int, name: str = "tasks", above: Own | None = None
) -> PlannedTasks:
    """The step.  `name` is what it is called in tables, `above` what its groups' transports go before."""
    fabric, spec = planner.fabric, planner.basis.fabric

    @cache
    def step_of(task: Collective) -> CollectiveStep:
        return as_step(graph, task)

    @cache
    def chosen(like: Collective) -> str:
        """What is fastest in the group's first tuple, of all that each of its tuples can do: all of them do it."""
        ((_, best),) = planner.chooser.choose(step_of(like), numbered=False, cut=False).items()
        expected: dict[str, float] = {**best["expected_ns"], **best.get("at_least_ns", {})}
        tuples = graph.groups[like.group]
        return next(
            (name for name in sorted(expected, key=lambda n: expected[n]) if _all_can(like, name, tuples, fabric)),
            str(best["algorithm"]),
        )

    def way(task: Collective, members: Members) -> dict[str, Any]:
        step = step_of(task)
        if step.algorithm == AUTO and planner.experiment.library and task.collective in by_library():
            return _by_library(step, members, planner)
        algorithm = chosen(task) if step.algorithm == AUTO else step.algorithm
        entry = find(task.collective, algorithm)
        everybody = sorted(members) == list(range(fabric.ranks)) and list(members) == sorted(members)
        told = group(entry, None if everybody else members, fabric)
        told["ranks"] = list(members) if told["ranks"] is None else told["ranks"]
        heeded = {key: getattr(step, key) for key in entry.extra if hasattr(step, key)}
        more = planner.collective(step).options.get("aggregation") if entry.accelerators else None
        return {
            **{"collective": task.collective, "algorithm": algorithm},
            **heeded,
            **told,
            **({"aggregation": more} if more else {}),
        }

    def marking(its: Settings) -> dict[str, Any]:
        marked: dict[str, Any] = {"dscp": None, "traffic_class": 0}
        if its.traffic_class is not None:
            marked = {"dscp": dscp_of(its.traffic_class, spec), "traffic_class": its.traffic_class}
        if its.transport is not None:
            marked["transport"] = planner.senders.numbers(its.traffic_class, above, its.transport)
        return marked

    like: dict[Any, Collective] = {}

    def way_of_like(task: Collective, members: Members) -> dict[str, Any]:
        """Tasks that differ in nothing but their names are looked at once."""
        return way(like.setdefault(task.alike, task), members)

    try:
        return PlannedTasks(compiled(graph, cache(way_of_like), find, marking), name, iterations, warmup)
    except BadGraph as bad:
        hint = "a group's offloaded collectives go in the order of the list, one at a time (docs/tasks.md)"
        raise InputError(str(bad), planner.experiment.place("workload"), hint) from None


def _by_library(step: CollectiveStep, members: Members, planner: Planner) -> dict[str, Any]:
    """What a group's members do where the experiment's library chooses."""
    by = planner.by_library(step.model_copy(update={"ranks": list(members), "groups": None}))
    (told,) = by.chosen().values()
    more = {"parts": step.parts} if step.parts else {}
    return {"collective": step.collective, **more, **{key: told[key] for key in told if key != "expected_ns"}}


def _all_can(task: Collective, algorithm: str, tuples: Sequence[Members], fabric: Fabric) -> bool:
    entry = find(task.collective, algorithm)
    for members in tuples:
        if entry.max_ranks is not None and len(members) > entry.max_ranks:
            return False
        try:
            group(entry, members, fabric)
        except NoGrid:
            return False
    return True
