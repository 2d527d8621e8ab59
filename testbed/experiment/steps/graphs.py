"""Steps that are graphs of tasks as they are written, and checks of such graphs: their collectives, one by one."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Hashable, Iterator, Mapping

from pydantic import ValidationError

from testbed.base.types import unknown
from testbed.base.units import format_size
from testbed.experiment.blocks import known
from testbed.experiment.steps.collective import CollectiveStep
from testbed.experiment.steps.step import Found, Path, Step
from topologies.graph.fabric import Fabric
from workloads.base.vocabulary import AUTO
from workloads.tasks.graph import Graph, Settings
from workloads.tasks.task import Collective


class GraphStep(Step):
    """A step whose graph follows from what is written and the number of ranks alone."""

    @abstractmethod
    def graph(self, ranks: int) -> Graph:
        """The graph on a fabric of so many ranks.  Raises BadGraph, or BadTrace of a file."""

    @property
    def repeats(self) -> tuple[int, int]:
        """Measured repetitions, and those before them."""
        return getattr(self, "iterations", 1), getattr(self, "warmup", 0)

    def algorithms(self, ranks: int) -> list[tuple[str, str]]:
        return algorithms(self.graph(ranks))


def named(algorithms: Mapping[str, str]) -> Iterator[Found]:
    """Mistakes in `{COLLECTIVE: ALGORITHM}`: one that nothing uses would be passed over else."""
    for name, algorithm in algorithms.items():
        if name not in known.collectives():
            yield (name,), *unknown("collective", name, known.collectives())
        elif algorithm not in known.choices(name):
            what, hint = unknown("algorithm", algorithm, known.choices(name))
            yield (name,), f"{what} of {name}", hint


def collectives(graph: Graph, fabric: Fabric) -> Iterator[tuple[Collective, Path, str, str]]:
    """Mistakes of a graph's collectives: one task of each kind that has some, and where in a step that would be."""
    for task in distinct(graph):
        try:
            step = as_step(graph, task)
        except ValidationError as error:
            yield from ((task, wrong["loc"], wrong["msg"], "") for wrong in error.errors())
            continue
        problems = list(step.mistakes_among(fabric, fabric.ranks))
        if not problems and known.entry(step.collective, step.algorithm).waits:
            what = (
                f"{step.collective} by {step.algorithm} needs its ranks for itself: it cannot be one of several tasks"
            )
            problems = [(("algorithm",), what, "a step of its own, or another algorithm")]
        elif not problems and task.parts and "parts" not in heeds(step.collective, step.algorithm):
            what = f"{step.collective} by {step.algorithm} has no unequal parts"
            problems = [(("parts",), what, "leave parts out, or all_to_all_v, m2n, n2m")]
        elif not problems and _own_class(graph, task) and not known.entry(step.collective, step.algorithm).schedule:
            what = f"{step.collective} by {step.algorithm} is sent in the NIC's class, not in one of the group's own"
            problems = [(("algorithm",), what, "leave traffic_class out, or let another group have it")]
        yield from ((task, *problem) for problem in problems)


def algorithms(graph: Graph) -> list[tuple[str, str]]:
    """(collective, algorithm) of all collectives of a graph."""
    return list(dict.fromkeys((task.collective, algorithm_of(graph, task)) for task in distinct(graph)))


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


def heeds(name: str, algorithm: str) -> tuple[str, ...]:
    fits = name in known.collectives() and algorithm in known.choices(name)
    return known.extra(name, algorithm) if fits else ()


def as_step(graph: Graph, task: Collective) -> CollectiveStep:
    """The collective step that does the same by itself, in all tuples of the group.  Raises ValidationError."""
    algorithm = algorithm_of(graph, task)
    extra = heeds(task.collective, algorithm)
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
        },
        context={"own": False},
    )


def algorithm_of(graph: Graph, task: Collective) -> str:
    """What is said, else the fastest, of collectives that have a choice."""
    if (said := graph.algorithm(task)) or task.collective not in known.collectives():
        return said or ""
    choices = known.choices(task.collective)
    return AUTO if AUTO in choices else choices[0]
