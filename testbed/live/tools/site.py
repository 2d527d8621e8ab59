"""Where a tool runs: a live fabric, or a world that stands still. On both it takes the emulated time that it takes.

A world is advanced by exactly that. On the real clock, and beside a job, time passes by itself. With the virtual clock
and nothing running, the clock is let go until the tool is done.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from testbed.fabric.lab import Lab
from testbed.live.look.world import AnyHeld
from testbed.words.kinds import Wrong
from topologies.graph.fabric import Fabric

STEP_NS = 1_000
"""A world is advanced in steps of that: a tool ends at the first one that sees it done."""
PASS_NS = 10_000
"""So often it is asked whether a tool shall stop."""
_POLL_S = 0.01


class Site:
    """A fabric, and how its time passes. On a world a tool ends before its time when `stop` says so."""

    def __init__(self, on: Lab | AnyHeld, stop: Callable[[], bool] = lambda: False) -> None:
        self._stop = stop
        self.lab = on if isinstance(on, Lab) else on.lab
        self._world = None if isinstance(on, Lab) else on

    @property
    def fabric(self) -> Fabric:
        return self.lab.fabric

    def request(self, op: str, **arguments: Any) -> dict[str, Any]:
        return (self._world or self.lab.fabricd).request(op, **arguments)

    def now_ns(self) -> float:
        return float(self.request("status")["time_ns"])

    def begin(self) -> None:
        """The clock may go: with the virtual clock somebody has to say so, if nothing runs."""
        if self._world is None and not self.lab.kernel and not self.request("status")["running"]:
            self.request("start", ranks=[])

    def until(self, done: Callable[[], bool], limit_ns: float, *, patient: bool = False) -> bool:
        """Lets time pass until `done`, but no longer than that. Returns whether it is.

        `patient`: on a live fabric whose clock stands, somebody is still going to start something.
        """
        begun = self.now_ns()
        while not done():
            if self._world is not None:
                if self._world.time_ns - begun >= limit_ns or self._stop():
                    return False
                self._world.advance(STEP_NS)
            elif self.now_ns() - begun >= limit_ns or (not patient and self._stands()):
                return done()
            else:
                time.sleep(_POLL_S)
        return True

    def step(self, ns: float) -> bool:
        """Lets so much time pass on a world, elsewhere a moment; False: the tool shall stop."""
        if self._world is None:
            time.sleep(_POLL_S)
        elif self._stop():
            return False
        else:
            self._world.advance(max(1, round(ns)))
        return True

    def pass_(self, ns: float) -> None:
        """Lets so much time pass."""
        if self._world is not None:
            end_ns = self._world.time_ns + round(ns)
            while self._world.time_ns < end_ns and not self._stop():
                self._world.advance(min(PASS_NS, end_ns - self._world.time_ns))
            return
        if self._stands():
            hint = "run a workload beside it (testbed job start FILE), or bring it up with --job"
            raise Wrong("nothing runs on this fabric, so its clock stands still", hint)
        end = self.now_ns() + ns
        while self.now_ns() < end and not self._stands():
            time.sleep(_POLL_S)

    def _stands(self) -> bool:
        """Whether nothing is left that could make time pass."""
        if self.lab.kernel:
            return False
        status = self.request("status")
        busy = any(worker["state"] in ("running", "waiting") for worker in status["workers"])
        return bool(status["idle"] or not status["running"]) and not busy
