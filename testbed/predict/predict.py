"""From an experiment to the times of its steps: nothing is started, and no frame is sent."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from testbed.plan.steps.kinds import steps_of
from testbed.plan.steps.planned import Planned, PlannedCollective, PlannedTasks
from testbed.predict.collectives import collective_figures
from testbed.predict.figure import Figure, Prediction, Tell, step_of
from testbed.predict.ground import Ground, Turn
from testbed.predict.large import large_figures, of_too_many
from testbed.predict.limits import left_out, refuse
from testbed.predict.tasks import task_figures

if TYPE_CHECKING:
    from testbed.experiment import Experiment


FIGURES: dict[type[Planned], Callable[..., Iterator[Figure]]] = {
    PlannedCollective: collective_figures,
    PlannedTasks: task_figures,
}


def predict(experiment: Experiment, tell: Tell = lambda text: None, swept: Iterable[str] = ()) -> Prediction:
    """The times of all steps.  Raises InputError for what there is no model of.

    `tell`: of each step, as it begins.  `swept`: the keys of the sweep that it is a point of.
    """
    refuse(experiment, swept)
    if experiment.fabric.topology.is_large:
        figures = tuple(large_figures(experiment, tell))
    else:
        with _uncollected():
            figures = tuple(_figures(experiment, tell))
    return Prediction(figures, left_out(experiment, figures))


@contextmanager
def _uncollected() -> Iterator[None]:
    """Millions of small objects stay to the end: to look for cycles among them takes a quarter of all time."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _figures(experiment: Experiment, tell: Tell) -> Iterator[Figure]:
    ground, number, job = Ground(experiment), 0, 1
    for k, step in enumerate(experiment.workload):
        tell(step_of(experiment, k))
        turn = Turn(step, number, job, experiment.place("workload", k))
        if figure := of_too_many(ground.large, turn):
            yield figure
            ground.connected.lost()
            number += 1
            continue
        planned = steps_of(step, ground.planner)  # the same steps as a run's
        yield from FIGURES[type(planned[0])](ground, turn, planned)
        job += sum(one.jobs for one in planned)
        number += len(planned)
