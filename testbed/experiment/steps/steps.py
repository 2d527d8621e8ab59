"""The kinds of steps of a workload; everything that has one for each follows from `KINDS`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Discriminator, Tag

from testbed.experiment.blocks import known
from testbed.experiment.steps.collective import CollectiveStep
from testbed.experiment.steps.flows import FlowsStep, LoadStep
from testbed.experiment.steps.program import ProgramStep
from testbed.experiment.steps.serving_checks import ServeStep
from testbed.experiment.steps.step import Step
from testbed.experiment.steps.tasks import TasksStep
from testbed.experiment.steps.traces import AicbStep, ChakraStep, TorchStep
from testbed.experiment.steps.training import TrainStep

KINDS: tuple[type[Step], ...] = (
    CollectiveStep, FlowsStep, LoadStep, TasksStep, ChakraStep, AicbStep, TorchStep, TrainStep, ServeStep,
    ProgramStep,
)  # fmt: skip


def _kind(value: Any) -> type[Step]:
    """Of a step as it is, or as it is written: whose key it has."""
    others = (kind for kind in KINDS if kind is not CollectiveStep)
    of_it = (kind for kind in others if isinstance(value, kind) or (isinstance(value, dict) and kind.kind in value))
    return next(of_it, CollectiveStep)


if TYPE_CHECKING:
    AnyStep = Step
else:
    AnyStep = Annotated[
        reduce(or_, (Annotated[kind, Tag(f"<{kind.kind}>")] for kind in KINDS)),
        Discriminator(lambda value: f"<{_kind(value).kind}>"),
    ]


def asks_for(value: Any, what: Literal["accelerators", "engines"]) -> bool:
    """Whether an experiment's workload, as written, has an algorithm that adds up in switches, or in NICs."""
    steps = value.get("workload") if isinstance(value, dict) else None
    return any(getattr(known.entry(*pair), what) for pair in _named(steps if isinstance(steps, list) else ()))


def _named(steps: Iterable[Any]) -> Iterator[tuple[str, str]]:
    """Collectives and algorithms that there are."""
    for step in steps:
        for collective, algorithm in _kind(step).written_algorithms(step) if isinstance(step, dict) else ():
            there = isinstance(collective, str) and collective in known.collectives()
            if there and isinstance(algorithm, str) and algorithm in known.algorithms(collective):
                yield collective, algorithm


def scaled_by(workload: Iterable[Step]) -> int:
    """What bytes, computations and latencies are divided by: the same for all steps."""
    return max((step.scaled_by for step in workload), default=1)
