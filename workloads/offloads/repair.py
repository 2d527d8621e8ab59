"""Repair of a multicast: every rank gets the chunks that it lacks from its left neighbour in the ring (no I/O here).

When its multicast has ended, a rank asks its left neighbour for what it lacks, once.  The neighbour gives what it has,
and the rest as it comes in from its own left.  Whatever rank s had sent is had by rank s itself.  Its right
neighbour therefore gets it when it asks; and a rank that asks gets from a neighbour that has it, or will.  So by
induction along the ring from s everybody gets every chunk of s, whatever else each is still waiting for.

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

    def __init__(self, chunks: int, here: int) -> None:
        self.missing = span(0, chunks) & ~here
        self._here = here
        self._owed = 0
        self._asked = False

    @property
    def through(self) -> bool:
        return self._asked and not self._owed and not self.missing

    def asked(self, chunks: int) -> list[Run]:
        """The right neighbour lacks these (none: it has all).  Returns what it is to be given now."""
        self._asked = True
        self._owed = chunks
        return self._give()

    def came(self, first: int, end: int) -> list[Run]:
        """The left neighbour has given these.  Returns what the right one is to be given now."""
        chunks = span(first, end)
        self._here |= chunks
        self.missing &= ~chunks
        return self._give()

    def _give(self) -> list[Run]:
        now = self._owed & self._here
        self._owed &= ~now
        return list(runs(now, RUN_CHUNKS))
