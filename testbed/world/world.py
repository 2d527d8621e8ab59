"""A world: a fabric with the virtual clock that stands still unless it is told to go on, and a job on it without end.

Everything that can be read at a hold follows from the experiment, its seed and what was asked of the world, in that
order. Not from the machine, nor from how long anybody thinks. See docs/held.md.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from hardware.client import FabricdError, FabricdSilent
from testbed.fabric.lab import Lab
from testbed.inject.agent import NAME as AGENT
from testbed.inject.agent import Agent
from testbed.inject.faults import put_in, requests_of
from testbed.live.look.events import in_order
from testbed.plan import together
from testbed.world.base import READS, AnyWorld, WorldGone, explaining
from testbed.world.history import PERIOD_NS, emulated, next_ns
from testbed.world.job import Job

if TYPE_CHECKING:
    from testbed.experiment import Experiment
    from testbed.faults import Injection

LOOK_S = 0.25
_GRAIN_NS = (500, 2_000, PERIOD_NS)
_GRAINS_PER_STEP = 16
RESTART_STEP_NS, RESTART_NS = 1_000, 10_000_000


@dataclass
class World(AnyWorld):
    """Its clock is held at 0 when `up` returns, the job about to begin."""

    time_ns: int = 0
    _going: int | None = None  # a hold that was asked for and not waited for: somebody has interrupted us

    @classmethod
    def _begin(cls, lab: Lab, experiment: Experiment, injections: Sequence[Injection]) -> Self:
        lab.fabricd.subscribe(acts=AGENT)
        lab.fabricd.request("run_until", time_ns=0)
        names = [f"f{number + 1}" for number in range(len(injections))]
        requests = requests_of(injections, names, experiment, lab.fabric, programs=lab.kernel)
        world = cls(lab, experiment, Job.start(lab, experiment, together.struck(requests)))
        world._agent = Agent(lab, world.job.kill)
        try:
            put_in(lab.fabricd, requests)
            lab.fabricd.request("start", ranks=world.job.ranks)
            world._going = 0
            world._wait()
            world._remember()
        except BaseException:
            world.job.close()
            raise
        return world

    # -- time

    def advance(self, ns: int) -> None:
        """Lets time go on by exactly so much. Raises WorldGone."""
        end = self._now() + ns
        while self.time_ns < end and self.wanted():
            snapshot = next_ns(self.time_ns)
            self._go(min(end, snapshot))
            if self.time_ns == snapshot:
                self._remember()

    def _towards(self, left_ns: int) -> None:
        """Every 16th of a step or so."""
        self.advance(min(self._grain(), left_ns))

    def _grain(self) -> int:
        """How far to go before the next look: less than a step takes, more when none has ended for long."""
        least, first, most = _GRAIN_NS
        best = self.best_ns
        usual = round(best / _GRAINS_PER_STEP) if best else first
        idle = self.time_ns - round(self.steps[-1].end_ns if self.steps else 0)
        return min(max(usual, least, idle // _GRAINS_PER_STEP), most)

    def _now(self) -> int:
        """The time of the hold; finishes what was interrupted."""
        if self._going is not None:
            self._wait()
        return self.time_ns

    def _go(self, time_ns: int) -> None:
        self._now()
        self._going = time_ns  # even if no answer comes: it was asked for
        with explaining(self.lab):
            self.lab.fabricd.request("run_until", time_ns=time_ns)
        self._wait()

    def _wait(self) -> None:
        """Until the clock is held at the time that was asked for; all lines up to it are then read."""
        fabricd = self.lab.fabricd
        with explaining(self.lab):
            while self._going is not None:
                for event in fabricd.events(0.0):
                    self._event(event)
                if self._going is not None:
                    self._hear(LOOK_S)
        self.job.read()

    def _event(self, event: dict[str, Any]) -> None:
        if event["event"] == "held" and event["time_ns"] == self._going:
            assert self._going is not None
            self.time_ns, self._going = self._going, None
        super()._event(event)

    def restart(self, workload: Sequence[Mapping[str, Any]] | None = None) -> None:
        """Ends the job's workers, and starts it anew: with another workload, if one is given as a file would have it.

        As long passes as the fabric takes to forget its offloads. Raises InputError for a workload that does not fit
        (then nothing has happened), WorldGone.
        """
        self._now()
        experiment = self.with_workload(workload)
        self.job.end()
        while any(w["state"] in ("running", "waiting") for w in self.request("status")["workers"]):
            self._hear(LOOK_S)  # until fabricd has seen that they are gone
        with explaining(self.lab):
            for event in self.lab.fabricd.events(0.0):
                if event["event"] != "worker_lost":  # that they are gone is no news
                    self._event(event)
        end = self.time_ns + RESTART_NS
        while (why := self._next_job()) is not None:
            if self.time_ns >= end:
                raise WorldGone(f"the job cannot start anew: {why}")
            self.advance(RESTART_STEP_NS)
        self.experiment = experiment
        self.job = Job.start(self.lab, experiment, self._struck(), self.job.said)
        self._agent = Agent(self.lab, self.job.kill)
        with explaining(self.lab):
            self.lab.fabricd.request("run_until", time_ns=self.time_ns)
            self.lab.fabricd.request("start", ranks=self.job.ranks)
        self._going = self.time_ns
        self._wait()

    def _next_job(self) -> str | None:
        """None, or why the ranks may not connect once more yet."""
        try:
            self.lab.fabricd.request("next_job")
        except FabricdSilent:
            raise
        except FabricdError as error:
            return str(error)
        return None

    # -- reads

    def digest(self) -> str:
        """Of all that can be read at this hold: equal in two worlds of which the same was asked."""
        status = self.request("status")
        readable = [
            self.time_ns,
            emulated(self.counters()),
            [step.to_dict() for step in self.steps],
            self.errors,
            status["workers"],
            [_without_number(fault) for fault in self.request("faults")["faults"]],
            [{**flow, "fast_packets": None} for flow in self.lab.flows()],  # whichever way they went
            in_order(self.events),
        ]
        return hashlib.sha256(json.dumps(readable, sort_keys=True).encode()).hexdigest()

    # -- changes

    def request(self, op: str, **arguments: Any) -> dict[str, Any]:
        """A request to fabricd. What it changes it changes now; returns when all of that has happened.

        Raises FabricdError if it is refused.
        """
        self._now()
        answer = self.lab.fabricd.request(op, **arguments)
        if op not in READS:
            self.settle()
        return self._named(op, answer)

    def settle(self) -> None:
        """Returns when all has happened that happens now: after changes that were made in other ways."""
        self._go(self._now())


def _without_number(fault: dict[str, Any]) -> dict[str, Any]:
    """Without the number that the request had among all: how much was read before is no matter of the world."""
    return {**fault, "request": {key: value for key, value in fault["request"].items() if key != "id"}}
