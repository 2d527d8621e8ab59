"""Several queue pairs to one peer, used as one: messages take them in turn, or each is split evenly over all of them.

As NCCL does (NCCL_IB_QPS_PER_CONNECTION, NCCL_IB_SPLIT_DATA_ON_QPS): in turn a message goes as a whole by the next
queue pair, so messages may arrive in another order than they were sent; split, each queue pair carries a part, and a
message is there when all its parts are.  Acknowledgements are told in the order of posting, as NCCL's proxy looks at
its oldest request first.  A write without an immediate goes by the queue pair of the next one that has one: together
they are one message.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from math import ceil
from typing import NamedTuple

from workloads.verbs import wire
from workloads.verbs.handles import QueuePair, Region
from workloads.verbs.wire import Record

COMPLETIONS = (wire.SENT, wire.RECEIVED, wire.RECEIVED_IMM)

ALIGNED = 128
"""Bytes of which parts are multiples, but the last."""


class _Posted(NamedTuple):
    """What waits for its acknowledgements: those of these members."""

    members: range
    wr_id: int
    signaled: bool
    length: int


class Bond(QueuePair):
    """Its number is that of its first member, by which records tell of it."""

    def __init__(self, members: Sequence[QueuePair], *, split: bool) -> None:
        first = members[0]
        self.number, self.peer, self.private, self.scale_up = first.number, first.peer, first.private, first.scale_up
        self.members, self._split = members, split
        self.lanes = 1 if split else len(members)
        self._index = {member.number: k for k, member in enumerate(members)}
        self._sends = self._receives = 0  # by which the next one goes
        self.posted: deque[_Posted] = deque()
        self._acknowledged = [0] * len(members)  # by the members, and not told yet
        self._arrived: dict[int, list[deque[Record]]] = {}  # parts, by immediate

    def lane(self, number: int) -> QueuePair:
        return self if self._split else _Lane(self, number % len(self.members))

    def write(
        self,
        source: Region,
        offset: int,
        length: int,
        rkey: int,
        target: int,
        *,
        wr_id: int = 0,
        signaled: bool = True,
        imm: int | None = None,
    ) -> None:
        if not self._split:
            lane = _Lane(self, self._sends)
            lane.write(source, offset, length, rkey, target, wr_id=wr_id, signaled=signaled, imm=imm)
            self._sends = (self._sends + (imm is not None)) % len(self.members)
            return
        self.posted.append(_Posted(range(len(self.members)), wr_id, signaled, length))
        for member, (begin, part) in zip(self.members, parts(length, len(self.members)), strict=True):
            member.write(source, offset + begin, part, rkey, target + begin, wr_id=wr_id, imm=imm)

    def send(self, source: Region, offset: int, length: int, *, wr_id: int = 0, signaled: bool = True) -> None:
        _Lane(self, self._sends).send(source, offset, length, wr_id=wr_id, signaled=signaled)
        self._sends = (self._sends + 1) % len(self.members)

    def recv(self, target: Region, offset: int = 0, length: int = 0, *, wr_id: int = 0) -> None:
        """Split, one without room is for the parts of a write; one with room is for a send, which is not split."""
        if self._split and not length:
            for member in self.members:
                member.recv(target, offset, length, wr_id=wr_id)
            return
        self.members[self._receives].recv(target, offset, length, wr_id=wr_id)
        self._receives = (self._receives + 1) % len(self.members)

    def told(self, record: Record) -> Iterator[Record]:
        """What a record of a member means for the whole: nothing yet, one, or several that waited for it."""
        k = self._index[record.qp]
        if record.kind == wire.SENT:
            self._acknowledged[k] += 1
            yield from self._all_acknowledged(record)
        elif record.kind == wire.RECEIVED_IMM and self._split:
            of = self._arrived.setdefault(record.imm, [deque() for _ in self.members])
            of[k].append(record)
            if all(of):
                its = [part.popleft() for part in of]
                if not any(of):
                    del self._arrived[record.imm]
                yield record._replace(qp=self.number, nbytes=sum(part.nbytes for part in its))
        else:
            yield record._replace(qp=self.number)

    def _all_acknowledged(self, now: Record) -> Iterator[Record]:
        while self.posted and all(self._acknowledged[k] for k in self.posted[0].members):
            posted = self.posted.popleft()
            for k in posted.members:
                self._acknowledged[k] -= 1
            if posted.signaled:
                yield now._replace(qp=self.number, wr_id=posted.wr_id, nbytes=posted.length)


class _Lane(QueuePair):
    """One member of a bond, whose messages take it and no other."""

    def __init__(self, bond: Bond, member: int) -> None:
        pair = bond.members[member]
        self.number, self.peer, self.private, self.scale_up = bond.number, pair.peer, pair.private, pair.scale_up
        self._bond, self._member, self._pair = bond, member, pair

    def write(
        self,
        source: Region,
        offset: int,
        length: int,
        rkey: int,
        target: int,
        *,
        wr_id: int = 0,
        signaled: bool = True,
        imm: int | None = None,
    ) -> None:
        self._posts(wr_id, signaled, length)
        self._pair.write(source, offset, length, rkey, target, wr_id=wr_id, imm=imm)

    def send(self, source: Region, offset: int, length: int, *, wr_id: int = 0, signaled: bool = True) -> None:
        self._posts(wr_id, signaled, length)
        self._pair.send(source, offset, length, wr_id=wr_id)

    def recv(self, target: Region, offset: int = 0, length: int = 0, *, wr_id: int = 0) -> None:
        self._pair.recv(target, offset, length, wr_id=wr_id)

    def _posts(self, wr_id: int, signaled: bool, length: int) -> None:
        self._bond.posted.append(_Posted(range(self._member, self._member + 1), wr_id, signaled, length))


def parts(length: int, members: int) -> Iterator[tuple[int, int]]:
    """Where each member's part begins, and its length: NCCL's, as even as multiples of 128 bytes allow."""
    even = ceil(length / members / ALIGNED) * ALIGNED
    for k in range(members):
        begin = min(k * even, length)
        yield begin, min(even, length - begin)
