"""What all steps of an experiment are predicted on, and a step whose turn it is."""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from testbed.experiment.blocks.cables import Override, OwnCable, laid
from testbed.faults.cable import CableFault
from testbed.plan.choose import Chooser
from testbed.plan.steps.planner import Planner
from testbed.predict.connected import Connected
from testbed.predict.expected_error import expected_errors
from testbed.predict.large_fabric import LargeFabric
from workloads.times.buffers import Buffers

if TYPE_CHECKING:
    from testbed.experiment import Experiment
    from testbed.experiment.steps.step import Step


CABLE_KEYS = {"rate_bps": "rate", "delay_ns": "delay"}
"""Parameters of faults that make of a cable another one, and its keys."""


def _with_faults(experiment: Experiment) -> Experiment:
    """Its fabric's cables as its faults leave them: all of these can be predicted."""
    if not experiment.inject:
        return experiment
    fabric = experiment.build_fabric()
    for injection in experiment.inject:  # the last one that applies wins
        fault = injection.fault
        assert isinstance(fault, CableFault)
        left: dict[str, Any] = {CABLE_KEYS[key]: value for key, value in fault.values().items()}
        fabric = laid(fabric, OwnCable(), {injection.on: Override.model_construct(**left)})
    return experiment.on_fabric(fabric)


class Ground:
    """Of one experiment.

    A cable that a fault makes slower or longer from beginning to end is one that was built so.  But controllers and
    `auto` know nothing of it: routes and algorithms are those of the healthy fabric.
    """

    def __init__(self, experiment: Experiment) -> None:
        struck = _with_faults(experiment)
        self.planner = Planner(experiment)
        self.chooser = self.planner.chooser if struck is experiment else Chooser(struck)
        self.connected = Connected(self.chooser)
        self.large = LargeFabric(struck)
        self.ranks = self.chooser.fabric.ranks
        self.buffers = cache(lambda traffic_class: Buffers(self.planner.chooser.rooms(traffic_class)))
        """By class: what would be paused."""
        self.errors = expected_errors(experiment)
        """By number of the step in the workload, and size: of collectives of a cluster that has a profile."""

    def anew(self) -> Ground:
        """The same before any step."""
        other = copy(self)
        other.connected = Connected(self.chooser)
        return other


@dataclass(frozen=True)
class Turn:
    """`number`: of its first step in the plan.  If it is offloaded, it is the fabric's `job`th."""

    step: Step
    number: int
    job: int
    place: str
