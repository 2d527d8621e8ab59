"""What block-sparse collectives move, by arithmetic, and what a dense one takes (docs/sparse.md derives both)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from topologies.graph.frames import ACK_BYTES, message_bytes
from workloads.sparse.layout import Layout
from workloads.sparse.sizes import MOST_BLOCKS, header_bytes
from workloads.sparse.spots import Windows
from workloads.times.messages import Costs, Path, received_ns

BLOCK_BYTES = 1024  # 256 elements of float32
FUSION = 4


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


def omnireduce_ns(ranks: int, size_bytes: int, path: Path, costs: Costs) -> float:
    """A dense all-reduce of float32, every rank worker and aggregator, with the default block and fusion.

    Each rank sends (n - 1)/n of its vector as a worker and the sums of its share to n - 1 workers: twice (n - 1)/n of
    the size, in messages of 4 KiB and a header, and as many acknowledgements.  Its host posts each message and adds up
    (n - 1)/n of the size.  The slower of link and host decides; a message's way there and back comes on top.
    """
    message = min(BLOCK_BYTES * FUSION, size_bytes) + header_bytes(FUSION)
    messages = -(-size_bytes // (BLOCK_BYTES * FUSION)) * (ranks - 1) / ranks
    link = 2 * messages * max(link.time_ns(message_bytes(message, costs.mtu) + ACK_BYTES) for link in path.links)
    host = 2 * messages * costs.post_ns + costs.reduce_ns(size_bytes) * (ranks - 1) / ranks
    once = 2 * (costs.post_ns + received_ns(message, path, costs) + costs.wake_ns)
    return max(link, host) + once


def omniccl_ns(ranks: int, size_bytes: int, path: Path, costs: Costs) -> float:
    """A dense all-reduce of float32 with an aggregator behind every rank's NIC, and the default block and window.

    Posting and adding up are not one host's, and do not count.  Two limits: the cable, which carries what a rank writes
    to the others' complexes and what its own complex sends them, and before that a window of every complex, for sums
    begin to flow when it is full; and the host's side of the NIC, which carries the whole vector once each way, two
    windows of every complex at a time: the next ones wait for the sums of the first.
    """
    blocks = min(MOST_BLOCKS, -(-size_bytes // (BLOCK_BYTES * ranks)))
    message = min(BLOCK_BYTES * blocks, size_bytes) + header_bytes(blocks)
    acks = 1 + (costs.packets(message) - 1) // costs.ack_every
    frames = message_bytes(message, costs.mtu) + acks * ACK_BYTES
    window = max(link.time_ns(frames) for link in path.links)
    windows = size_bytes / (BLOCK_BYTES * blocks)
    turns, together = windows / ranks, min(ranks, windows)
    there_and_back = 2 * (path.constant_ns + 3 * costs.pcie_latency_ns + costs.post_ns + costs.wake_ns)
    cable = (2 * windows + together) * (ranks - 1) / ranks * window + there_and_back
    host = (windows + together) * window + (turns / 2 + 1) * there_and_back
    return max(cable, host)
