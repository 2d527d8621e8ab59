"""A held clock (testbed.world) as pages use it: one lets it go on, others look when it stands."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock
from typing import Any

from testbed.base.errors import UserError
from testbed.fabric.lab import Lab
from testbed.world.going import read
from testbed.world.kept import Kept
from testbed.world.source import OfWorld

LIMIT = "10ms"
"""Of emulated time, for steps and conditions."""
MOST_STEPS = 5000


class HeldClock:
    def __init__(self, lab: Lab) -> None:
        self._world = Kept(lab)
        self._going = Lock()  # whoever lets it go on
        self._asking = Lock()  # whoever speaks to its keeper
        self.source = OfWorld(self._world)

    @property
    def goes(self) -> bool:
        """Whether a page lets it go on right now."""
        return self._going.locked()

    @contextmanager
    def still(self) -> Iterator[None]:
        """While the clock stands. Raises UserError if it goes on."""
        if self.goes:
            raise _goes_on()
        with self._asking:
            yield

    def advance(self, line: str) -> dict[str, Any]:
        """`200us`, `10 steps`, `until step > 1.2x`. Raises UserError."""
        go = read(line.split(), LIMIT)
        if not self._going.acquire(blocking=False):
            raise _goes_on()
        try:
            with self._asking:
                before = len(self._world.steps)
                met = go(self._world)
                steps, errors = self._world.steps[before:], self._world.errors
            return {"met": met, "limit": LIMIT, "steps": len(steps), "errors": errors}
        finally:
            self._going.release()

    def steps(self, since: int) -> list[dict[str, Any]]:
        """From that number on. Raises UserError."""
        with self.still():
            steps = self._world.steps[max(0, since) :][-MOST_STEPS:]
        return [{"number": s.number, "start_ns": s.start_ns, "step_ns": s.time_ns, "wrong": s.wrong} for s in steps]

    def hang_up(self) -> None:
        self._world.hang_up()


def _goes_on() -> UserError:
    return UserError("the clock goes on", "held clock", "look again when it stands still")
