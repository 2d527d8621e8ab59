"""Block-sparse inputs that every rank can compute for every other, and the check of a result against their sum.

The share `density` of a rank's blocks is not zero.  Of these, the share `overlap` is the same at all ranks (the first
ones of a random order that all know); each rank draws the others by itself from the rest.  So 0 is independent
positions and 1 the same positions everywhere.  Elements of a non-zero block are integers other than zero, small enough
for every sum to be exact.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from workloads.base import data

_ORDER = 1 << 40  # random streams from here on order blocks


class SparseInputs:
    """The inputs of `ranks` ranks, cut into blocks of `block` elements."""

    def __init__(self, seed: int, ranks: int, dtype: str, op: str, block: int, density: float, overlap: float) -> None:
        self.seed = seed
        self.ranks = ranks
        self.dtype = data.element(dtype)
        self.op = op
        self.block = block
        self.density = density
        self.overlap = overlap
        largest = data.largest_term(dtype, ranks)
        self._periods = [self._values(index, largest) for index in range(ranks)]

    def _values(self, index: int, largest: int) -> NDArray[np.int64]:
        noise = data.noise(self.seed, index)
        sign = 1 - 2 * (noise & np.uint64(self.dtype.kind != "u")).astype(np.int64)
        adds = (np.arange(data.PERIOD) + index) % self.ranks < data.most_terms(self.dtype.name, self.ranks)
        return adds * sign * (1 + (noise >> np.uint64(1)) % np.uint64(largest)).astype(np.int64)

    def nonzero(self, index: int, blocks: int, variant: int) -> NDArray[np.bool_]:
        """Which of the blocks of the group's rank `index` are not zero."""
        marks = np.zeros(blocks, dtype=bool)
        count = int(self.density * blocks + 0.5)
        common = int(self.overlap * count + 0.5)
        shared = self._order(0, blocks, variant)
        marks[shared[:common]] = True
        rest = shared[common:]
        own = self._order(index + 1, len(rest), variant)[: count - common]
        marks[rest[own]] = True
        return marks

    def _order(self, stream: int, count: int, variant: int) -> NDArray[np.int64]:
        words = data.noise(self.seed, _ORDER + variant * (1 << 16) + stream, count)
        order: NDArray[np.int64] = np.argsort(words, kind="stable")
        return order

    def fill(self, out: NDArray[Any], index: int, variant: int, tick: Callable[[], None] = lambda: None) -> None:
        """Writes the input of the group's rank `index`."""
        data.fill(out, self._periods[index].astype(self.dtype), variant, tick)
        blocks = -(-len(out) // self.block)
        for block in np.flatnonzero(~self.nonzero(index, blocks, variant)):
            out[block * self.block : (block + 1) * self.block] = 0

    def count_wrong(self, result: NDArray[Any], variant: int, tick: Callable[[], None] = lambda: None) -> int:
        """How many elements of `result` are not those of the sum (or average)."""
        blocks = -(-len(result) // self.block)
        masks = [self.nonzero(index, blocks, variant) for index in range(self.ranks)]
        step = max(1, data.BLOCK_BYTES // (self.block * 8))
        wrong = 0
        for first in range(0, blocks, step):
            count = min(step, blocks - first)
            elements = np.arange(first * self.block, (first + count) * self.block).reshape(count, self.block)
            elements = (elements + variant) % data.PERIOD
            total = np.zeros((count, self.block), dtype=np.int64)
            for period, mask in zip(self._periods, masks, strict=True):
                rows = mask[first : first + count]
                total[rows] += period[elements[rows]]
            part = result[first * self.block : (first + count) * self.block]
            wrong += int(np.count_nonzero(part != self._finished(total.reshape(-1)[: len(part)])))
            tick()
        return wrong

    def finish(self, sums: NDArray[Any]) -> None:
        """Makes averages of sums, in place, where these are wanted."""
        if self.op == "avg":
            data.divide(sums, self.ranks)

    def _finished(self, total: NDArray[np.int64]) -> NDArray[Any]:
        return data.averaged(total, self.ranks, self.dtype) if self.op == "avg" else total.astype(self.dtype)
