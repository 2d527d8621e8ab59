"""Where a fault strikes on a fabric that is brought up, or will be: what its experiment says of it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from testbed.experiment.built import built
from testbed.plan.hardware import line_rate_bps

if TYPE_CHECKING:
    from testbed.experiment import Experiment
    from testbed.faults import Injection, Place
    from topologies.graph.fabric import Fabric


def place_of(
    injection: Injection, experiment: Experiment, fabric: Fabric, *, nth: int = 0, programs: bool = False
) -> Place:
    """`fabric` is the experiment's graph. `nth`: of the experiment's faults, so that its draws are its own; `programs`:
    ranks run programs besides workers. Raises CannotInject."""
    rate = line_rate_bps(experiment, fabric, range(fabric.ranks))
    place = injection.place(fabric, rate, experiment.seed + nth, experiment.transport.cc.name, built(experiment))
    return replace(place, programs=programs)
