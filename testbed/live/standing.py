"""The fabric of a sweep's point stays for the next one, where that would have the same.

A tenant of a fabric that is up has the figures of a fabric that was brought up for it alone (live/tenant.py); bringing
one up and taking it down is most of a small point. Two points have the same fabric if all is the same that one is made
of: its graph, its hardware's parameters, and the experiment without what is the point's own. A point with the real
clock, or with a fault that strikes programs, has a fabric of its own; so has the one after a point that has failed.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from testbed.experiment.scale import scaled_down
from testbed.inject.faults import requests_of
from testbed.live.tenant import Tenant
from testbed.plan.hardware import hardware_of

if TYPE_CHECKING:
    from testbed.base.progress import Progress
    from testbed.experiment import Experiment
    from testbed.fabric.fork_server import ControllerSeat, ControllerServer
    from testbed.fabric.lab import Lab

_OF_THE_POINT = ("name", "workload", "inject", "measure", "capture", "sweep")


class Place(NamedTuple):
    """As `run` takes it."""

    up: Callable[[Experiment], Lab] | None = None
    on: Tenant | None = None


class Guest(Tenant):
    """A point on a fabric that only points use: nothing is in force there besides its own."""

    keeps = True

    def in_force(self) -> dict[str, Any]:
        return {}


class Standing:
    """The fabric that stands now, if any, and its controller's seat."""

    def __init__(self, controllers: ControllerServer) -> None:
        self._controllers = controllers
        self._lab: Lab | None = None
        self._seat: ControllerSeat | None = None
        self._made_of = ""

    @contextmanager
    def place(self, experiment: Experiment, progress: Progress) -> Iterator[Place]:
        """Where it runs: on the fabric that stands, a new one that will, or one of its own. Raises what Lab.up raises.

        If it raises itself, what stands goes down.
        """
        from testbed.fabric.lab import Lab

        if not shares(experiment):
            self.down()
            with closing(self._controllers.seat(experiment.control.library)) as seat:
                yield Place(up=partial(Lab.up, seat=seat))
            return
        wanted = made_of(experiment)
        if self._lab is None or wanted != self._made_of:
            self.down()
            progress.stage("building the fabric")
            self._seat = self._controllers.seat(experiment.control.library)
            self._lab, self._made_of = Lab.up(scaled_down(experiment), seat=self._seat), wanted
            self._lab.keeps = True
        try:
            yield Place(on=Guest(self._lab))
        except BaseException:
            self.down()
            raise

    def down(self) -> None:
        """Takes it down, if it is there. Raises MachineError."""
        lab, self._lab = self._lab, None
        seat, self._seat = self._seat, None
        try:
            if lab:
                lab.down()
        finally:
            if seat:
                seat.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.down()


def shares(experiment: Experiment) -> bool:
    """Whether its fabric can be another point's, too."""
    goes_on = any(getattr(getattr(step, "checkpoint", None), "steps", None) for step in experiment.workload)
    if experiment.clock.mode != "virtual" or goes_on:
        return False
    names = [f"f{k + 1}" for k in range(len(experiment.inject))]
    requests = requests_of(experiment.inject, names, experiment, experiment.build_fabric())
    return all(request["primitive"] != "act" for request in requests)


def made_of(experiment: Experiment) -> str:
    """All that a fabric of it is made of."""
    small = scaled_down(experiment)
    resolved = small.resolved()
    parts = {
        **{key: value for key, value in resolved.items() if key not in _OF_THE_POINT},
        "fabric": small.build_fabric().to_dict(),
        "hardware": asdict(hardware_of(small)),
    }
    return json.dumps(parts, sort_keys=True, default=str)
