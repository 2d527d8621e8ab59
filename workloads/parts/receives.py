"""Receives of a connection, posted ahead of the messages."""

from __future__ import annotations

from workloads.parts import turns
from workloads.verbs import QueuePair, Region

MOST_RECEIVES = 32768  # posted at a time, over all connections of a rank


class Receives:
    """`bound` messages may still come in; as many receives stand ready, `depth` of them at most.

    `state` is where that stands: who takes records in C (turns.py) goes on with it.
    """

    def __init__(self, pair: QueuePair, region: Region, depth: int) -> None:
        self._pair = pair
        self._region = region
        self.state = turns.Receives(pair.number, region.key, region.at, depth, 0, 0, 0)

    def expect(self, bound: int) -> None:
        self.state.bound = bound
        while self.state.posted < min(bound, self.state.depth):
            self._post()

    def took(self) -> None:
        """One was used up."""
        state = self.state
        state.posted -= 1
        state.bound -= 1
        if state.posted < state.bound and state.posted < state.depth:
            self._post()

    def _post(self) -> None:
        self._pair.recv(self._region)
        self.state.posted += 1
