"""What block-sparse collectives move, by arithmetic (docs/sparse.md derives it)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from workloads.sparse.layout import Layout
from workloads.sparse.sizes import header_bytes
from workloads.sparse.spots import Windows


def omniccl_bytes(nonzero: Sequence[NDArray[np.bool_]], windows: Windows, itemsize: int) -> tuple[list[int], int]:
    """What each worker sends, and what each receives, in messages of OmNICCL.

    Data as in OmniReduce; a header for each window, with an index for each of its blocks.
    """
    return [_parts_bytes(marks, windows, itemsize) for marks in nonzero], _parts_bytes(
        np.any(nonzero, axis=0), windows, itemsize
    )


def _parts_bytes(marks: NDArray[Any], windows: Windows, itemsize: int) -> int:
    total = 0
    for window in range(windows.number):
        indices = np.flatnonzero(marks[window * windows.spot : (window + 1) * windows.spot])
        total += header_bytes(len(indices)) + windows.elements(window, indices) * itemsize
    return total


def omnireduce_bytes(nonzero: Sequence[NDArray[np.bool_]], layout: Layout, itemsize: int) -> tuple[list[int], int]:
    """What each worker sends, and what each receives, in messages of OmniReduce.

    `nonzero[w]` marks the non-zero blocks of worker w.  Data: the blocks of its own there, those of the sum back, each
    once.  Headers: the k-th round of a slot takes each column's k-th block of the sum (round 0: the first block of
    all), so a slot has as many rounds as its fullest column has such blocks, and a worker speaks in those that it has
    one in.
    """
    union = np.any(nonzero, axis=0)
    lengths = np.array([layout.length(b) for b in range(layout.blocks)], dtype=np.int64) * itemsize
    rounds = _grid(layout, union).astype(np.int64)
    rounds[0] = 0  # taken by round 0, whatever is in them
    rounds = np.cumsum(rounds, axis=0)  # by row and column: the round that a block of the sum is in
    header = header_bytes(layout.fusion)
    slots = rounds[-1].reshape(layout.slots, layout.fusion)
    received = int(lengths[union].sum()) + header * int((1 + slots.max(axis=1)).sum())
    sent = []
    for marks in nonzero:
        ours = _grid(layout, marks)
        ours[0] = False
        spoken = np.zeros((int(rounds.max()) + 1, layout.slots), dtype=bool)
        row, column = np.nonzero(ours)
        spoken[rounds[row, column], column // layout.fusion] = True
        sent.append(int(lengths[marks].sum()) + header * (layout.slots + int(spoken.sum())))
    return sent, received


def _grid(layout: Layout, marks: NDArray[np.bool_]) -> NDArray[Any]:
    """Marks by row and column."""
    grid = np.zeros(layout.rows * layout.columns, dtype=bool)
    grid[: layout.blocks] = marks
    return grid.reshape(layout.rows, layout.columns)
