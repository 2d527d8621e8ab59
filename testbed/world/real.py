"""A world on the real clock: it goes on by itself, while its operator thinks, and never goes the same way twice.

Its calls are those of a held world. `advance` and `until` wait; what is read is read in passing. So no state of it can
be compared with that of another world, and whether it was fit to be judged is measured (`fidelity`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

from results.figures.fidelity import Fidelity, StealMeter
from testbed.fabric.lab import Lab
from testbed.inject.agent import NAME as AGENT
from testbed.inject.agent import Agent
from testbed.live.verdict import judged
from testbed.world.base import READS, AnyWorld, WorldGone, explaining
from testbed.world.job import Job

if TYPE_CHECKING:
    from testbed.experiment import Experiment
    from testbed.faults import Injection

LOOK_S = 0.1
"""So often it is looked at while somebody waits."""
KEPT_S = 1.0
"""So often its counters are kept, of wall time."""


@dataclass
class RealWorld(AnyWorld):
    """Its job has been started when `up` returns, and connects meanwhile."""

    _steal: StealMeter = field(default_factory=StealMeter)
    _kept_s: float = 0.0
    _seen_ns: int = 0

    @classmethod
    def _begin(cls, lab: Lab, experiment: Experiment, injections: Sequence[Injection]) -> Self:
        lab.fabricd.subscribe(acts=AGENT)
        world = cls(lab, experiment, Job.start(lab, experiment))
        world._agent = Agent(lab, world.job.kill)
        try:
            for rank in set(lab.containers.names) - set(world.job.ranks):
                lab.containers.idle(rank)  # all have one, so who has one does not tell whom a fault strikes
            for number, injection in enumerate(injections, 1):
                world.put_in(injection, f"f{number}")
            world.heed()
        except BaseException:
            world.job.close()
            raise
        return world

    # -- time

    @property
    def time_ns(self) -> int:
        """Of a world that is gone, when it was last seen."""
        with suppress(WorldGone):
            self._seen_ns = self._now()
        return self._seen_ns

    def _now(self) -> int:
        with explaining(self.lab):
            return int(self.lab.fabricd.request("status")["time_ns"])

    def advance(self, ns: int) -> None:
        """Waits for so much emulated time. Raises WorldGone."""
        end = self._now() + ns
        while (left := end - self._now()) > 0 and self.wanted():
            self._towards(left)
        self.heed()

    def until(self, condition: str | Callable[[Any], bool], limit_ns: int) -> bool:
        self.heed()
        return super().until(condition, limit_ns)

    def _towards(self, left_ns: float) -> None:
        """Until something is said, but for no longer than one look."""
        self._hear(max(0.001, min(left_ns * self.lab.dilation / 1e9, LOOK_S)))
        self.heed()

    def heed(self) -> None:
        """Takes what was said meanwhile, does what fabricd asks for, keeps the counters. To be called often."""
        super().heed()
        self.job.read()
        if time.monotonic() - self._kept_s >= KEPT_S:
            self._kept_s = time.monotonic()
            self._remember()

    def _remember(self) -> None:
        with explaining(self.lab):
            super()._remember()

    def settle(self) -> None:
        self.heed()

    # -- reads

    def digest(self) -> str:
        """None: it is nowhere the same again."""
        return ""

    def fidelity(self) -> Fidelity:
        """How far its figures can be trusted, as measured since it came up. Raises WorldGone."""
        with explaining(self.lab):
            counters = self.counters()
        return judged(self.experiment, counters["fidelity"], self._steal.share())

    # -- changes

    def request(self, op: str, **arguments: Any) -> dict[str, Any]:
        answer = self.lab.fabricd.request(op, **arguments)
        if op not in READS:
            self.heed()
        return self._named(op, answer)
