"""Messages between two ends of a program: each has places for some at the other, which it writes into.

A message is one RDMA write with immediate, which is the message's number; its place follows from that.  So whoever
reuses a place must know that the message before it there was read.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct

import numpy as np

from workloads.parts.context import Context
from workloads.verbs import FabricError, Peer, QueuePair, Region, wire
from workloads.verbs.wire import Record

_TARGET = Struct("<IQ")  # region key, offset


class Mailbox:
    """One end of it: `room` bytes at most each way, in `places` places."""

    def __init__(self, pair: QueuePair, outbox: Region, inbox: Region, room: int, places: int) -> None:
        self.pair, self.peer = pair, pair.peer
        self._outbox, self._inbox = outbox, inbox
        self._room, self._places = room, places
        self._rkey, self._base = _TARGET.unpack(pair.private)

    def expect(self, messages: int) -> None:
        """So many will come."""
        for _ in range(messages):
            self.pair.recv(self._inbox)

    def send(self, number: int, message: bytes, cuts: Sequence[tuple[int, int]] = ()) -> None:
        """Posts it, in one write, or in one for each of the `cuts` (place, length)."""
        if len(message) > self._room:
            raise FabricError(f"a message of {len(message)} bytes in a place of {self._room}")
        at = number % self._places * self._room
        self._outbox.view("uint8", at, len(message))[:] = np.frombuffer(message, np.uint8)
        *first, last = cuts or ((0, len(message)),)
        for begin, length in first:
            self.pair.write(self._outbox, at + begin, length, self._rkey, self._base + at + begin, signaled=False)
        begin, length = last
        target = self._base + at + begin
        self.pair.write(self._outbox, at + begin, length, self._rkey, target, imm=number, signaled=False)

    def read(self, record: Record, nbytes: int | None = None) -> bytes:
        """The message that a record tells of; `nbytes` of it, where it came in several writes."""
        if record.kind != wire.RECEIVED_IMM:
            raise FabricError(f"a record of kind {record.kind} in a mailbox")
        nbytes = record.nbytes if nbytes is None else nbytes
        return bytes(self._inbox.view("uint8", record.imm % self._places * self._room, nbytes))


def mailboxes(
    context: Context, peers: Sequence[tuple[int, int]], room: int, places: int, name: str = ""
) -> dict[int, Mailbox]:
    """By number of their queue pairs, in the order of `peers`: (number, tag), the same tag at both ends.

    `name` tells apart what a part makes in several calls.
    """
    room = -(-room // 8) * 8
    outbox = context.region(f"outbox {name} {room}", len(peers) * places * room)
    inbox = context.region(f"inbox {name} {room}", len(peers) * places * room)
    each = places * room
    calls = [Peer(peer, tag, _TARGET.pack(inbox.key, k * each)) for k, (peer, tag) in enumerate(peers)]
    pairs = context.device.connect(calls)
    return {
        pair.number: Mailbox(pair, outbox.part(k * each, each), inbox.part(k * each, each), room, places)
        for k, pair in enumerate(pairs)
    }
