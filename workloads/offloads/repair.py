"""Repair of a multicast: every rank gets the chunks that it lacks from its left neighbour in the ring (no I/O here).

When its multicast has ended, a rank asks its left neighbour once for what it lacks.  The neighbour sends what it has,
and the rest as it comes in from its own left.  Rank s has all that it sent, so its right neighbour gets that when it
asks, then the next one: by induction along the ring everybody gets every chunk of s.

A rank is through when it has everything and its right neighbour has got all that it asked for: until then its memory is
still needed.
"""

from __future__ import annotations

from workloads.offloads.chunking import runs, span

RUN_CHUNKS = 32
"""Chunks that are given in one piece at most: a long repair passes from neighbour to neighbour piece by piece."""

Run = tuple[int, int]  # first chunk, and the one behind the last


class Repair:
    """One rank's state.  Sets of chunks are bits of integers."""

    def __init__(self, chunks: int, present: int) -> None:
        self.missing = span(0, chunks) & ~present
        self._present = present
        self._owed = 0
        self._requested = False

    @property
    def through(self) -> bool:
        return self._requested and not self._owed and not self.missing

    def request(self, chunks: int) -> list[Run]:
        """The right neighbour lacks these (none: it has all).  Returns what to send it now."""
        self._requested = True
        self._owed = chunks
        return self._to_send()

    def receive(self, first: int, end: int) -> list[Run]:
        """The left neighbour has sent these.  Returns what to send the right one now."""
        chunks = span(first, end)
        self._present |= chunks
        self.missing &= ~chunks
        return self._to_send()

    def _to_send(self) -> list[Run]:
        now = self._owed & self._present
        self._owed &= ~now
        return list(runs(now, RUN_CHUNKS))
