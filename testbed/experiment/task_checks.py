"""Checks of a step of tasks against the fabric: its ranks, its graph, its collectives, its classes."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from typing import TYPE_CHECKING

from pydantic import ValidationError

from testbed.base.types import unknown
from testbed.base.units import format_size
from testbed.experiment.blocks import known
from testbed.experiment.blocks.fabric import dscp_of
from testbed.experiment.step_checks import Found, Path, collective, rank_out_of_range
from testbed.experiment.steps.steps import CollectiveStep
from topologies.graph.fabric import Fabric
from workloads.base.vocabulary import AUTO
from workloads.tasks.check import BadGraph
from workloads.tasks.graph import Graph, Settings
from workloads.tasks.task import Collective

if TYPE_CHECKING:
    from testbed.experiment.blocks.fabric import FabricSpec
    from testbed.experiment.steps.tasks import Task, Tasks


def tasks(told: Tasks, spec: FabricSpec, fabric: Fabric) -> Iterator[Found]:
    """All mistakes in it; a graph is only made of tasks whose ranks there are."""
    found = [*_ranks(told, fabric.ranks), *_classes(told, spec), *_algorithms(told)]
    if not found:
        found = [*_graph(told, fabric.ranks)]
    if not found:
        found = [*_collectives(told, fabric)]
    yield from ((("tasks", *path), what, hint) for path, what, hint in found)


def _ranks(told: Tasks, ranks: int) -> Iterator[Found]:
    for name, group in told.groups.items():
        for i, members in enumerate(group.ranks):
            for rank in members:
                if problem := rank_out_of_range(rank, ranks):
                    yield ("groups", name, i), *problem
    for i, one in enumerate(told.tasks):
        for key, named in (("ranks", one.ranks or ()), ("to", (one.to,)), ("from", (one.from_,))):
            for other in named:
                if other is not None and (problem := rank_out_of_range(other, ranks)):
                    yield ("list", i, key), *problem
        if one.ranks and len(set(one.ranks)) < len(one.ranks):
            yield ("list", i, "ranks"), "a rank stands twice", "each rank has a task once"


def _classes(told: Tasks, spec: FabricSpec) -> Iterator[Found]:
    for name, group in told.groups.items():
        if problem := no_dscp(group.traffic_class, spec):
            yield ("groups", name, "traffic_class"), *problem


def no_dscp(its: int | None, spec: FabricSpec) -> tuple[str, str] | None:
    """What is wrong with a group's class, and what to do, if no DSCP is in it."""
    if its is None or dscp_of(its, spec) is not None:
        return None
    what = f"no DSCP is in class {its}, so nothing can be sent in it"
    return what, f"fabric.switch.dscp: {{{its * 8}: {its}}} beside the others"


def _algorithms(told: Tasks) -> Iterator[Found]:
    for name, group in told.groups.items():
        for path, what, hint in named(group.algorithm):
            yield ("groups", name, "algorithm", *path), what, hint


def named(algorithms: Mapping[str, str]) -> Iterator[Found]:
    """Mistakes in `{COLLECTIVE: ALGORITHM}`: one that nothing uses would be passed over else."""
    for name, algorithm in algorithms.items():
        if name not in known.collectives():
            yield (name,), *unknown("collective", name, known.collectives())
        elif algorithm not in known.choices(name):
            what, hint = unknown("algorithm", algorithm, known.choices(name))
            yield (name,), f"{what} of {name}", hint


def _graph(told: Tasks, ranks: int) -> Iterator[Found]:
    try:
        told.graph(ranks)
    except BadGraph as bad:
        place = told.place_of(bad.rank, bad.task, ranks)
        yield place, str(bad), "docs/tasks.md says what a graph is"


def _collectives(told: Tasks, fabric: Fabric) -> Iterator[Found]:
    graph = told.graph(fabric.ranks)
    place = {one.task(): i for i, one in reversed(list(enumerate(told.tasks))) if one.collective is not None}
    for task, path, what, hint in collectives(graph, fabric):
        yield _place(place[task], told.tasks[place[task]], path), what, hint
    yield from _unheeded(told, graph)


def collectives(graph: Graph, fabric: Fabric) -> Iterator[tuple[Collective, Path, str, str]]:
    """Mistakes of a graph's collectives: one task of each kind that has some, and where in a step that would be."""
    for task in distinct(graph):
        try:
            step = as_step(graph, task)
        except ValidationError as error:
            yield from ((task, wrong["loc"], wrong["msg"], "") for wrong in error.errors())
            continue
        problems = list(collective(step, fabric, fabric.ranks))
        if not problems and known.entry(step.collective, step.algorithm).waits:
            what = (
                f"{step.collective} by {step.algorithm} needs its ranks for itself: it cannot be one of several tasks"
            )
            problems = [(("algorithm",), what, "a step of its own, or another algorithm")]
        elif not problems and task.parts and "parts" not in _heeds(step.collective, step.algorithm):
            what = f"{step.collective} by {step.algorithm} has no unequal parts"
            problems = [(("parts",), what, "leave parts out, or all_to_all_v, m2n, n2m")]
        elif not problems and _own_class(graph, task) and not known.entry(step.collective, step.algorithm).schedule:
            what = f"{step.collective} by {step.algorithm} is sent in the NIC's class, not in one of the group's own"
            problems = [(("algorithm",), what, "leave traffic_class out, or let another group have it")]
        yield from ((task, *problem) for problem in problems)


def algorithms(graph: Graph) -> list[tuple[str, str]]:
    """(collective, algorithm) of all collectives of a graph."""
    return list(dict.fromkeys((task.collective, _algorithm(graph, task)) for task in distinct(graph)))


def _own_class(graph: Graph, task: Collective) -> bool:
    return graph.settings.get(task.group, Settings()).traffic_class is not None


def distinct(graph: Graph) -> list[Collective]:
    """One collective of each kind that there is."""
    found: dict[Hashable, Collective] = {}
    for its in graph.tasks.values():
        for task in its:
            if isinstance(task, Collective):
                found.setdefault(task.alike, task)
    return list(found.values())


def _unheeded(told: Tasks, graph: Graph) -> Iterator[Found]:
    """Options of groups that none of their collectives heeds."""
    heeded: dict[str, set[str]] = {}
    for task in distinct(graph):
        heeded.setdefault(task.group, set()).update(_heeds(task.collective, _algorithm(graph, task)))
    for name, group in told.groups.items():
        for key in group.options:
            if name in heeded and key not in heeded[name]:
                its = ", ".join(sorted(heeded[name])) or "nothing"
                yield ("groups", name, "options", key), f"none of its collectives heeds {key}", f"they heed {its}"


def _heeds(name: str, algorithm: str) -> tuple[str, ...]:
    fits = name in known.collectives() and algorithm in known.choices(name)
    return known.extra(name, algorithm) if fits else ()


def _place(i: int, one: Task, path: Path) -> Path:
    """Where in the file the mistake stands that a collective step would have at `path`."""
    assert one.group is not None
    match path:
        case ("ranks", *_):
            return ("groups", one.group)
        case ("groups", int(number), *_):
            return ("groups", one.group, "ranks", number)
        case ("sizes", *_):
            return ("list", i, "size") if one.size is not None else ("list", i)
        case ("algorithm",) if one.algorithm is None:
            return ("groups", one.group)
        case (str(key), *_) if getattr(one, key, None) is not None:
            return ("list", i, key)
        case (str(key), *_) if key not in type(one).model_fields:
            return ("groups", one.group, "options", key)
    return ("list", i)


def as_step(graph: Graph, task: Collective) -> CollectiveStep:
    """The collective step that does the same by itself, in all tuples of the group.  Raises ValidationError."""
    algorithm = _algorithm(graph, task)
    extra = _heeds(task.collective, algorithm)
    tuples = [list(members) for members in graph.groups[task.group]]
    which = {"ranks": tuples[0]} if len(tuples) == 1 or algorithm == AUTO else {"groups": tuples}
    options = dict(graph.settings.get(task.group, Settings()).options)
    options |= {"parts": [list(row) for row in task.parts]} if task.parts else {}
    return CollectiveStep.model_validate(
        {
            **{"collective": task.collective, "algorithm": algorithm, "dtype": task.dtype},
            "sizes": [format_size(task.size_bytes)],
            **({"op": task.op} if task.op else {}),
            **which,
            **{key: value for key, value in options.items() if key in extra},
        }
    )


def _algorithm(graph: Graph, task: Collective) -> str:
    """What is said, else the fastest, of collectives that have a choice."""
    if (said := graph.algorithm(task)) or task.collective not in known.collectives():
        return said or ""
    choices = known.choices(task.collective)
    return AUTO if AUTO in choices else choices[0]
