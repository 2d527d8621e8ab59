"""OmniReduce's worker and aggregator: pure state machines, without I/O or time.

Theory of operation (OmniReduce, SIGCOMM'21, algorithms 1 and 2)

A slot works through its columns round by round.  In a round, each column has one current block, the same for all.  A
worker's message carries its blocks among the current ones that are not zero, and for every column `next`, the offset of
its next non-zero block there.  The aggregator adds up and keeps next[worker].  The smallest of a column's is the block
that comes next, because no worker has one before it: whatever lies between is zero everywhere and is never sent.  A
column is complete once every worker is past its current block, and the slot's round once all its columns are.  Then all
workers get the sums with the offsets of the next current blocks; only those that have one of these answer.

Round 0 begins with the first block of every column, and every worker sends a message, because its offsets are needed.
(The paper sends the first block's data, too; here zeros are left out there as everywhere, so that a worker transmits
density x size and headers, exactly.)

`lossy`: messages may be lost, doubled and overtake each other.  Then every worker answers every round, with no data if
it has none: so each result is an acknowledgement and each answer is one, too.  The aggregator keeps two sets of sums
per slot and uses them in turn, with a bitmap per set of the workers heard: a set is used again only when every worker
has answered the round between, that is, has the result that it held.  A worker that hears nothing sends again (its
timer is the caller's), and a message that was counted already is answered from the stored result, if there is one.
Messages carry their round, so that one that comes very late is known as such.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from workloads.sparse.layout import NONE, Layout


class Message(NamedTuple):
    """From worker to aggregator, or back: `data` are the blocks of the columns in `mask`, one behind the other."""

    slot: int
    round: int
    mask: int
    nexts: list[int]
    data: NDArray[Any]


class Malformed(ValueError):
    """A message that the protocol does not allow."""


@dataclass
class _Stream:
    """A slot as a worker sees it."""

    current: list[int]  # the blocks of this round
    own: list[int]  # ours that are next: each at its column's current one or behind it
    round: int = 0
    done: bool = False
    last: Message | None = None  # what to send again


class Worker:
    """One worker's side of all slots.  The sums come in over its vector's own blocks."""

    def __init__(
        self,
        layout: Layout,
        vector: NDArray[Any],
        place: Callable[[int, int], NDArray[Any]] | None = None,
        *,
        lossy: bool = False,
    ) -> None:
        """`place(slot, elements)`: where the data of a slot's message is put together (default: anywhere)."""
        self.layout = layout
        self.vector = vector
        self.lossy = lossy
        self._place = place or (lambda slot, elements: np.empty(elements, vector.dtype))
        self.nonzero = layout.nonzero(vector)
        self._following = layout.following(self.nonzero)
        self._streams = [self._stream(layout.first(slot)) for slot in range(layout.slots)]
        self._left = layout.slots

    def _stream(self, first: list[int]) -> _Stream:
        own = [b if b == NONE or self.nonzero[b] else self._following[b] for b in first]
        return _Stream(first, own)

    @property
    def done(self) -> bool:
        return self._left == 0

    def begin(self, slot: int) -> Message:
        """The message of round 0."""
        return self._answer(slot, self._streams[slot])

    def result(self, message: Message) -> Message | None:
        """Takes in a result; returns the answer, if there is one."""
        stream = self._streams[message.slot]
        if message.round != stream.round or stream.done:
            if not self.lossy:
                raise Malformed(f"slot {message.slot}: result of round {message.round} in round {stream.round}")
            return None
        at = 0
        for column, block in enumerate(stream.current):
            if message.mask >> column & 1:
                length = self.layout.length(block)
                self.vector[self.layout.elements(block)] = message.data[at : at + length]
                at += length
        stream.round += 1
        stream.current = message.nexts
        if all(b == NONE for b in message.nexts):
            stream.done = True
            stream.last = None
            self._left -= 1
            return None
        if self.lossy or any(own == now != NONE for own, now in zip(stream.own, stream.current, strict=True)):
            return self._answer(message.slot, stream)
        return None

    def again(self, slot: int) -> Message | None:
        """What to send when nothing was heard of a slot for too long; None if it is done."""
        return self._streams[slot].last

    def _answer(self, slot: int, stream: _Stream) -> Message:
        mask, elements = 0, 0
        ours: list[int] = []
        for column, (own, now) in enumerate(zip(stream.own, stream.current, strict=True)):
            if own == now != NONE:
                mask |= 1 << column
                ours.append(own)
                elements += self.layout.length(own)
                stream.own[column] = self._following[own]
        data = self._place(slot, elements)
        at = 0
        for block in ours:
            length = self.layout.length(block)
            data[at : at + length] = self.vector[self.layout.elements(block)]
            at += length
        message = Message(slot, stream.round, mask, list(stream.own), data)
        if self.lossy:
            stream.last = message
        return message


@dataclass
class _Slot:
    """A slot as its aggregator sees it."""

    current: list[int]
    nexts: list[list[int]]  # by worker; -1: not heard of
    waits_for: int  # how many workers have yet to speak in this round
    round: int = 0
    mask: int = 0  # columns that have a sum
    done: bool = False
    heard: list[int] = field(default_factory=lambda: [0, 0])  # bitmap of workers, by set
    results: list[Message | None] = field(default_factory=lambda: [None, None])


class Aggregator:
    """The aggregator of some slots."""

    def __init__(
        self,
        layout: Layout,
        workers: int,
        slots: Iterable[int],
        dtype: np.dtype[Any],
        sums: Callable[[int, int], NDArray[Any]] | None = None,
        *,
        finish: Callable[[NDArray[Any]], None] = lambda sums: None,
        lossy: bool = False,
    ) -> None:
        """`sums(slot, set)`: room for the sums of a slot's message (default: anywhere).

        `finish` is done to each sum before it leaves.
        """
        self.layout = layout
        self._finish = finish
        self.workers = workers
        self.lossy = lossy
        self.added_elements = 0  # that met a sum which was there already: what the additions cost
        room = sums or (lambda slot, which: np.empty(layout.message_elements, dtype))
        self._slots = {slot: self._slot(slot) for slot in slots}
        self._sums = {slot: (room(slot, 0), room(slot, 1)) for slot in self._slots}
        self._left = len(self._slots)

    def _slot(self, slot: int) -> _Slot:
        first = self.layout.first(slot)
        return _Slot(first, [[-1] * self.layout.fusion for _ in range(self.workers)], self.workers)

    @property
    def done(self) -> bool:
        return self._left == 0

    def round(self, slot: int) -> int:
        """The round that a slot is in; its parity says which set of sums it uses."""
        return self._slots[slot].round

    def contribution(self, worker: int, message: Message) -> tuple[Message, bool] | None:
        """Takes in a worker's message.  Returns a result if there is one, and whether it is for all or for it alone."""
        slot = self._slots[message.slot]
        if message.round != slot.round or slot.done or slot.heard[slot.round & 1] >> worker & 1:
            return self._repeated(worker, message, slot)
        self._add(slot, message)
        which = slot.round & 1
        slot.heard[which] |= 1 << worker
        slot.heard[1 - which] &= ~(1 << worker)
        slot.nexts[worker] = message.nexts
        slot.waits_for -= 1
        return (self._complete(message.slot, slot), True) if slot.waits_for == 0 else None

    def _repeated(self, worker: int, message: Message, slot: _Slot) -> tuple[Message, bool] | None:
        if not self.lossy:
            raise Malformed(f"worker {worker}, slot {message.slot}: round {message.round} in round {slot.round}")
        stored = slot.results[message.round & 1]
        if stored is not None and stored.round == message.round:
            return stored, False
        return None

    def _add(self, slot: _Slot, message: Message) -> None:
        sums, data = self._sums[message.slot][slot.round & 1], message.data
        full = (1 << self.layout.fusion) - 1
        if message.mask == full == slot.mask and len(data) == len(sums):
            np.add(sums, data, out=sums)
            self.added_elements += len(data)
            return
        at = 0
        for column, block in enumerate(slot.current):
            if not message.mask >> column & 1:
                continue
            if block == NONE:
                raise Malformed(f"slot {message.slot}: data for column {column}, which has ended")
            length = self.layout.length(block)
            part = sums[column * self.layout.block : column * self.layout.block + length]
            if slot.mask >> column & 1:
                np.add(part, data[at : at + length], out=part)
                self.added_elements += length
            else:
                part[:] = data[at : at + length]
            at += length
        slot.mask |= message.mask
        if at != len(data):
            raise Malformed(f"slot {message.slot}: {len(data)} elements in a message of {at}")

    def _complete(self, number: int, slot: _Slot) -> Message:
        sums = self._sums[number][slot.round & 1]
        nexts = [min(offsets) for offsets in zip(*slot.nexts, strict=True)]
        data = self._packed(slot, sums)
        self._finish(data)
        result = Message(number, slot.round, slot.mask, nexts, data)
        if self.lossy:
            slot.results[slot.round & 1] = result
        slot.round += 1
        slot.mask = 0
        slot.current = nexts
        if all(b == NONE for b in nexts):
            slot.done = True
            self._left -= 1
        elif self.lossy:
            slot.waits_for = self.workers
        else:
            slot.heard[slot.round & 1] = 0
            slot.waits_for = sum(
                any(own == now != NONE for own, now in zip(mine, nexts, strict=True)) for mine in slot.nexts
            )
        return result

    def _packed(self, slot: _Slot, sums: NDArray[Any]) -> NDArray[Any]:
        """The sums of the columns that have one, moved together."""
        at = 0
        for column, block in enumerate(slot.current):
            if slot.mask >> column & 1:
                length = self.layout.length(block)
                start = column * self.layout.block
                if start != at:
                    sums[at : at + length] = sums[start : start + length]
                at += length
        return sums[:at]
