"""How a vector is cut for block-sparse aggregation: blocks, columns, slots; and the header of a message.

A block is the unit that is sent or left out.  Blocks stand row by row in `slots * fusion` columns; a slot owns `fusion`
neighbouring columns, so that what it streams are strided blocks, and a message of a slot may carry one block of each of
its columns (OmniReduce, SIGCOMM'21, sections 3.1 and 3.2: streaming aggregation in slots, block fusion).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from struct import Struct
from typing import Any

import numpy as np
from numpy.typing import NDArray

NONE = 2**32 - 1
"""The offset behind a column's last non-zero block: infinity."""


@dataclass(frozen=True)
class Layout:
    """`count` elements in blocks of `block`, streamed through at most `slots` slots of `fusion` columns each."""

    count: int
    block: int
    fusion: int
    slots: int

    @classmethod
    def of(cls, count: int, block: int, fusion: int, slots: int) -> Layout:
        """With no more slots than there are messages to fill."""
        blocks = -(-count // block)
        return cls(count, block, fusion, max(1, min(slots, -(-blocks // fusion))))

    @property
    def blocks(self) -> int:
        return -(-self.count // self.block)

    @property
    def columns(self) -> int:
        return self.slots * self.fusion

    @property
    def rows(self) -> int:
        """Blocks of the longest column: no slot has more rounds."""
        return max(1, -(-self.blocks // self.columns))

    @property
    def message_elements(self) -> int:
        return self.block * self.fusion

    @cached_property
    def header(self) -> Struct:
        """Round, mask of the columns with data, and for every column the offset of the next non-zero block."""
        return Struct(f"<II{self.fusion}I")

    def first(self, slot: int) -> list[int]:
        """The first block of each of a slot's columns, NONE for a column without blocks."""
        start = slot * self.fusion
        return [b if b < self.blocks else NONE for b in range(start, start + self.fusion)]

    def elements(self, block: int) -> slice:
        return slice(block * self.block, min((block + 1) * self.block, self.count))

    def length(self, block: int) -> int:
        """Elements of a block; the last one may be shorter."""
        return min(self.block, self.count - block * self.block)

    def nonzero(self, vector: NDArray[Any]) -> NDArray[np.bool_]:
        """Which blocks have an element that is not zero (NaN is not)."""
        whole = self.count // self.block
        marks = np.zeros(self.blocks, dtype=bool)
        marks[:whole] = (vector[: whole * self.block].reshape(whole, self.block) != 0).any(axis=1)
        if whole < self.blocks:
            marks[whole] = (vector[whole * self.block :] != 0).any()
        return marks

    def following(self, nonzero: NDArray[np.bool_]) -> list[int]:
        """For every block, the next non-zero one of its column behind it (NONE if there is none)."""
        offsets = np.full(self.rows * self.columns, NONE, dtype=np.int64)
        offsets[: self.blocks][nonzero] = np.flatnonzero(nonzero)
        grid = offsets.reshape(self.rows, self.columns)
        least = np.minimum.accumulate(grid[::-1], axis=0)[::-1]  # the first non-zero one from this row on
        behind = np.full_like(grid, NONE)
        behind[:-1] = least[1:]
        behind_each: list[int] = behind.reshape(-1)[: self.blocks].tolist()
        return behind_each
