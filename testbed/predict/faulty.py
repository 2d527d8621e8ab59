"""Faults that can be predicted: what cables have left for the whole run.

A cable that is slower or longer from beginning to end is one that was built so.  But controllers and `auto` know
nothing of it: routes and algorithms are those of the healthy fabric.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from testbed.experiment.blocks.cables import Override, OwnCable, laid
from testbed.faults.cable import CableFault

if TYPE_CHECKING:
    from testbed.experiment import Experiment
    from testbed.faults import Injection

_KEYS = {"rate_bps": "rate", "delay_ns": "delay"}


def is_of_cables(injection: Injection) -> bool:
    """Whether it changes cables' rates or delays, and nothing else."""
    return isinstance(injection.fault, CableFault) and injection.fault.values().keys() <= _KEYS.keys()


def lasts(injection: Injection) -> bool:
    """From the beginning to the end."""
    return injection.at == 0 and injection.lasts is None


def with_faults(experiment: Experiment) -> Experiment:
    """Its fabric's cables as its faults leave them: all of these can be predicted."""
    if not experiment.inject:
        return experiment
    fabric = experiment.build_fabric()
    for injection in experiment.inject:  # the last one that applies wins
        fault = injection.fault
        assert isinstance(fault, CableFault)
        left: dict[str, Any] = {_KEYS[key]: value for key, value in fault.values().items()}
        fabric = laid(fabric, OwnCable(), {injection.on: Override.model_construct(**left)})
    return experiment.on_fabric(fabric)
