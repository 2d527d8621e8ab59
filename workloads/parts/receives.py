"""Receives of a connection, posted ahead of the messages."""

from __future__ import annotations

from workloads.verbs import QueuePair, Region

MOST_RECEIVES = 32768  # posted at a time, over all connections of a rank


class Receives:
    """`bound` messages may still come in; as many receives stand ready, `depth` of them at most."""

    def __init__(self, pair: QueuePair, region: Region, depth: int) -> None:
        self._pair = pair
        self._region = region
        self._depth = depth
        self._posted = 0
        self._bound = 0

    def expect(self, bound: int) -> None:
        self._bound = bound
        while self._posted < min(bound, self._depth):
            self._post()

    def took(self) -> None:
        """One was used up."""
        self._posted -= 1
        self._bound -= 1
        if self._posted < self._bound and self._posted < self._depth:
            self._post()

    def _post(self) -> None:
        self._pair.recv(self._region)
        self._posted += 1
