"""A world as something to look at: with its history, and the steps of its job."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from testbed.live.look.lab import OfLab
from testbed.live.look.steps import Step
from testbed.live.look.world import AnyHeld


class OfWorld(OfLab):
    """A `Source` (live/look/look.py) of a world."""

    def __init__(self, world: AnyHeld) -> None:
        super().__init__(world.lab)
        self._world = world

    def counters(self) -> dict[str, Any]:
        return self._world.counters()

    def history(self) -> Sequence[tuple[int, dict[str, Any]]]:
        return self._world.history()

    def request(self, op: str, **arguments: Any) -> dict[str, Any]:
        return self._world.request(op, **arguments)

    def flows(self) -> list[dict[str, Any]]:
        """Without how many frames went by the fast path: that depends on the machine."""
        return [{key: value for key, value in row.items() if key != "fast_packets"} for row in super().flows()]

    def steps(self) -> Sequence[Step]:
        return self._world.steps
