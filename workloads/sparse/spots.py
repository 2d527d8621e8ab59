"""OmNICCL's aggregation: windows of blocks, Rx spots and Tx spots.  Pure state machines, without I/O or time.

Theory of operation (OmNICreduce, in: OmNICCL, NAIC 2024)

The vector is cut into windows of `spot` blocks.  A worker writes what is not zero of a window, with its blocks'
indices, into an Rx spot of the aggregator; it need not know what others have, and nobody waits for offsets.  The
aggregator adds each block into the Tx spot, at its index.  When all workers have written their part of the window, what
the Tx spot holds goes to all of them, with its indices again.

A worker has two Rx spots and there are two Tx spots, used in turn by an aggregator's windows: so the next window is
written and added up while the last one's sums are still being read.  A worker writes a window when it has the sums of
the one before the last: by then its Rx spot has been added up.  So memory is bounded, whatever the vector's size:
2 (workers + 1) spots, which should stay in the last-level cache of the SmartNIC, where its NIC puts what comes in.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from workloads.sparse.layout import Layout
from workloads.sparse.protocol import Malformed


class WindowPart(NamedTuple):
    """Blocks of a window: `indices` count from its beginning, `data` are the blocks one behind the other."""

    window: int
    indices: NDArray[np.uint32]
    data: NDArray[Any]


@dataclass(frozen=True)
class Windows:
    """`count` elements in blocks of `block`, in windows of `spot` blocks, dealt out to `aggregators` in turn."""

    count: int
    block: int
    spot: int
    aggregators: int

    @classmethod
    def of_vector(cls, count: int, block: int, most: int, aggregators: int) -> Windows:
        """With windows of `most` blocks, or smaller ones if otherwise an aggregator had nothing to do."""
        blocks = -(-count // block)
        return cls(count, block, max(1, min(most, -(-blocks // aggregators))), aggregators)

    @property
    def blocks(self) -> int:
        return -(-self.count // self.block)

    @property
    def number(self) -> int:
        return -(-self.blocks // self.spot)

    def of(self, aggregator: int) -> range:
        """An aggregator's windows."""
        return range(aggregator, self.number, self.aggregators)

    def aggregator(self, window: int) -> int:
        return window % self.aggregators

    def half(self, window: int) -> int:
        """Which of the two spots a window uses."""
        return window // self.aggregators & 1

    def elements(self, window: int, indices: NDArray[Any]) -> int:
        """Elements of these blocks, in order; the vector's last block may be shorter."""
        if not len(indices):
            return 0
        last = window * self.spot + int(indices[-1])
        return (len(indices) - 1) * self.block + min(self.block, self.count - last * self.block)

    def view(self, vector: NDArray[Any], window: int) -> NDArray[Any]:
        start = window * self.spot * self.block
        return vector[start : start + self.spot * self.block]


class Worker:
    """One worker's side.  The sums come in over its vector's own blocks."""

    def __init__(
        self, windows: Windows, vector: NDArray[Any], place: Callable[[int, int, int], NDArray[Any]] | None = None
    ) -> None:
        """`place(window, blocks, elements)`: where a message's data is put together (default: anywhere)."""
        self.windows = windows
        self.vector = vector
        self._place = place or (lambda window, blocks, elements: np.empty(elements, vector.dtype))
        self._nonzero = Layout(windows.count, windows.block, 1, 1).nonzero(vector)
        self._left = windows.number

    @property
    def done(self) -> bool:
        return self._left == 0

    def first(self) -> list[int]:
        """The windows to begin with: two of each aggregator."""
        return list(range(min(self.windows.number, 2 * self.windows.aggregators)))

    def contribution(self, window: int) -> WindowPart:
        start = window * self.windows.spot
        indices = np.flatnonzero(self._nonzero[start : start + self.windows.spot]).astype(np.uint32)
        elements = self.windows.elements(window, indices)
        data = self._place(window, len(indices), elements)
        _gather(self.windows.view(self.vector, window), indices, self.windows.block, data)
        return WindowPart(window, indices, data)

    def result(self, part: WindowPart) -> int | None:
        """Takes in a window's sums; returns the window that may now be written, if there is one."""
        _scatter(self.windows.view(self.vector, part.window), part.indices, self.windows.block, part.data)
        self._left -= 1
        after = part.window + 2 * self.windows.aggregators
        return after if after < self.windows.number else None


class Aggregator:
    """One aggregator's side: its windows one after the other, two at a time."""

    def __init__(
        self,
        windows: Windows,
        number: int,
        workers: int,
        dtype: np.dtype[Any],
        spots: Callable[[int], NDArray[Any]] | None = None,
        *,
        finish: Callable[[NDArray[Any]], None] = lambda sums: None,
    ) -> None:
        """`number`: which aggregator this is; `spots(half)`: room for a Tx spot; `finish` is done to each sum."""
        self.windows = windows
        self.workers = workers
        self.added_elements = 0  # that met a sum which was there already
        self._finish = finish
        room = spots or (lambda half: np.empty(windows.spot * windows.block, dtype))
        self._spots = (room(0), room(1))
        self._present = [np.zeros(windows.spot, dtype=bool) for _ in range(2)]
        self._heard: list[set[int]] = [set(), set()]
        self._window: list[int | None] = [None, None]  # the one that each spot is used for
        self._left = len(windows.of(number))

    @property
    def done(self) -> bool:
        return self._left == 0

    def contribution(self, worker: int, part: WindowPart) -> WindowPart | None:
        """Adds up a worker's part; returns the sums when it was the last one's."""
        half = self.windows.half(part.window)
        if self._window[half] is None:
            self._window[half] = part.window
        if self._window[half] != part.window or worker in self._heard[half]:
            raise Malformed(f"worker {worker}: window {part.window} while {self._window[half]} is in the spot")
        if len(part.indices) and not (
            int(part.indices[-1]) < self.windows.spot and (np.diff(part.indices.astype(np.int64)) > 0).all()
        ):
            raise Malformed(f"worker {worker}, window {part.window}: indices that are not in order")
        if len(part.data) != self.windows.elements(part.window, part.indices):
            raise Malformed(f"worker {worker}, window {part.window}: {len(part.data)} elements")
        self._add(half, part)
        self._heard[half].add(worker)
        if len(self._heard[half]) < self.workers:
            return None
        self._left -= 1
        return self._complete(half, part.window)

    def _add(self, half: int, part: WindowPart) -> None:
        block, spot, present = self.windows.block, self._spots[half], self._present[half]
        whole = len(part.data) // block
        indices = part.indices[:whole]
        rows, data = spot.reshape(-1, block), part.data[: whole * block].reshape(-1, block)
        known = present[indices]
        rows[indices[~known]] = data[~known]
        rows[indices[known]] += data[known]
        self.added_elements += int(known.sum()) * block
        if rest := len(part.data) - whole * block:
            last = int(part.indices[-1])
            place = spot[last * block : last * block + rest]
            if present[last]:
                np.add(place, part.data[whole * block :], out=place)
                self.added_elements += rest
            else:
                place[:] = part.data[whole * block :]
        present[part.indices] = True

    def _complete(self, half: int, window: int) -> WindowPart:
        """The sums, moved together to the spot's beginning."""
        spot, block = self._spots[half], self.windows.block
        indices = np.flatnonzero(self._present[half]).astype(np.uint32)
        data = spot[: self.windows.elements(window, indices)]
        if len(indices) and int(indices[-1]) >= len(indices):
            _gather(spot, indices, block, data)
        self._finish(data)
        self._present[half][:] = False
        self._heard[half] = set()
        self._window[half] = None
        return WindowPart(window, indices, data)


def _gather(window: NDArray[Any], indices: NDArray[Any], block: int, data: NDArray[Any]) -> None:
    """Copies the blocks with these indices into `data`, which may be the window's own beginning."""
    whole = len(data) // block
    rows = window[: len(window) // block * block].reshape(-1, block)
    chosen = rows[indices[:whole]]  # a copy
    rest = window[int(indices[-1]) * block :].copy() if len(data) > whole * block else None
    data[: whole * block].reshape(-1, block)[:] = chosen
    if rest is not None:
        data[whole * block :] = rest[: len(data) - whole * block]


def _scatter(window: NDArray[Any], indices: NDArray[Any], block: int, data: NDArray[Any]) -> None:
    """The inverse, between different arrays."""
    whole = len(data) // block
    window[: len(window) // block * block].reshape(-1, block)[indices[:whole]] = data[: whole * block].reshape(
        -1, block
    )
    if len(data) > whole * block:
        start = int(indices[-1]) * block
        window[start : start + len(data) - whole * block] = data[whole * block :]
