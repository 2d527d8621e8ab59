"""A vector in chunks of one packet each, as multicast sends it; and sets of chunks, as bits of an integer.

The vector is one part (broadcast) or one part of each rank (all-gather), the first of them an element longer where it
does not come out even.  Every part begins with a chunk of its own, so a chunk has one sender.  All chunks are numbered
through.  hardware/fabricd/offload/multicast/multicast.c cuts in the same way.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from itertools import accumulate


class Chunks:
    """How `nbytes` in elements of `element` bytes are cut into `parts` and chunks of `payload` bytes at most."""

    def __init__(self, nbytes: int, element: int, payload: int, parts: int) -> None:
        each, longer = divmod(nbytes // element, parts)
        sizes = [(each + (part < longer)) * element for part in range(parts)]
        self.payload = payload
        self.edges = [0, *accumulate(sizes)]  # of the parts, in bytes
        self.firsts = [0, *accumulate(-(-size // payload) for size in sizes)]  # of the parts, in chunks

    @property
    def count(self) -> int:
        return self.firsts[-1]

    @property
    def bitmap_bytes(self) -> int:
        """Of a bit per chunk, in words of 64."""
        return -(-self.count // 64) * 8

    def of_part(self, part: int) -> int:
        """The set of a part's chunks."""
        return span(self.firsts[part], self.firsts[part + 1])

    def offset(self, chunk: int) -> int:
        """Where a chunk begins, in bytes; of `count`: the end of the vector."""
        part = min(bisect_right(self.firsts, chunk), len(self.firsts) - 1) - 1
        return min(self.edges[part] + (chunk - self.firsts[part]) * self.payload, self.edges[part + 1])

    def end(self, first: int, nbytes: int) -> int:
        """The chunk before which a run of `nbytes` ends that begins with chunk `first`.  Raises ValueError."""
        target = self.offset(first) + nbytes
        end = bisect_left(range(self.count), target, key=self.offset)
        if not first < end or self.offset(end) != target:
            raise ValueError(f"{nbytes} bytes from chunk {first} on are no whole chunks")
        return end


def span(first: int, end: int) -> int:
    """The set of the chunks from `first` to before `end`."""
    return (1 << end) - (1 << first)


def runs(chunks: int, limit: int) -> Iterator[tuple[int, int]]:
    """The set in runs of neighbours, (first, end), each of `most` at most."""
    at = 0
    while chunks:
        gap = (chunks & -chunks).bit_length() - 1
        chunks >>= gap
        at += gap
        length = min((~chunks & (chunks + 1)).bit_length() - 1, limit)
        yield at, at + length
        chunks >>= length
        at += length
