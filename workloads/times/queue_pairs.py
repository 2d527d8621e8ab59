"""Queue pairs of connections: their numbers, and what follows from them; several that are used as one.

A NIC numbers its queue pairs as they are made, so the numbers of a step depend on the steps before it.  What a rank
asks for at once it gets in that order (hardware/fabricd/transport/qp.c).  From the numbers follows a flow's UDP source
port, which is what ECMP goes by.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from workloads.base.entry import Algorithm
from workloads.base.vocabulary import DTYPES
from workloads.collectives.exchange import distances
from workloads.collectives.schedule import Schedule, Shape, connections, program_of, schedule_of
from workloads.collectives.shape import shape_of
from workloads.verbs.bond import parts

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Number = TypeVar("Number", int, NDArray[np.int64])

Callback = Callable[[float], None]
Pair = TypeVar("Pair")
Post = Callable[[float, Pair, int, Callback, Callback | None], None]

FIRST = 16
"""A NIC's first one."""

LEAST_PORT = 0xC000
"""The first source port of RoCEv2's range."""

Call = tuple[int, int]  # peer and channel
Flow = tuple[int, int, int]  # from rank, to rank, channel
Numbers = Mapping[Flow, tuple[int, int]]
"""The queue pairs at both ends of a flow."""


def source_port(number: Number, peer_number: Number, ip: Number, peer_ip: Number, *, fixed: bool = False) -> Number:
    """The UDP source port of what a queue pair sends to its peer.  `fixed`: all have the same."""
    if fixed:
        return number * 0 + LEAST_PORT
    mixed = number * 0x9E3779B1 ^ peer_number * 0x85EBCA6B ^ ip * 0xC2B2AE35 ^ peer_ip * 0x27D4EB2F
    return LEAST_PORT | (mixed & 0xFFFFFFFF) >> 18


class QueuePairs:
    """The queue pairs of all NICs of a fabric, as a run's steps make them one after the other.

    `each`: so many are made for a connection between ranks; what is told is the first one.
    """

    def __init__(self, each: int = 1) -> None:
        self._each = each
        self._made: Counter[int] = Counter()
        self._rings: dict[tuple[int, int], tuple[int, int]] = {}

    def copy(self) -> QueuePairs:
        """To try what would come next."""
        other = QueuePairs(self._each)
        other._made, other._rings = self._made.copy(), dict(self._rings)
        return other

    def counts(self) -> dict[int, int]:
        """How many each rank has made."""
        return dict(self._made)

    def recount(self, counts: Mapping[int, int]) -> None:
        """Others have made some: so many there are now."""
        self._made = Counter(counts)

    def connect(self, calls: Mapping[int, Sequence[Call]]) -> Numbers:
        """What each rank asks for, in its order."""
        numbers = {(rank, *call): self._new(rank, self._each) for rank, own in calls.items() for call in own}
        return {(a, b, channel): (number, numbers[b, a, channel]) for (a, b, channel), number in numbers.items()}

    def ring(self, ranks: Sequence[int]) -> Numbers:
        """From each NIC to the next, as NICs make them by themselves; what an earlier ring has left is used again."""
        numbers = {}
        for k, rank in enumerate(ranks):
            edge = rank, ranks[(k + 1) % len(ranks)]
            if edge not in self._rings:
                self._rings[edge] = self._new(edge[0]), self._new(edge[1])
            numbers[*edge, 0] = self._rings[edge]
        return numbers

    def _new(self, rank: int, count: int = 1) -> int:
        number = FIRST + self._made[rank]
        self._made[rank] += count
        return number


def connected(
    pairs: QueuePairs, entry: Algorithm, ranks: Sequence[int], told: Mapping[str, Any], seed: int, most: float
) -> tuple[Numbers, ...] | None:
    """What an algorithm connects next, in the order in which it uses it.  None: more than `most`.

    `told`: of the step, with all `sizes`.
    """
    if entry.schedule:
        largest = shape_of(entry, len(ranks), max(told["sizes"] or [0]), DTYPES[told["dtype"]], told, seed)
        calls = of_schedule(schedule_of(entry), largest, ranks, most)
        return None if calls is None else (pairs.connect(calls),)
    if entry.multicast:
        return (pairs.connect(of_multicast(ranks)),)
    if entry.engines:
        return (pairs.ring(ranks),)
    if entry.layout == "ring":
        return pairs.connect(of_ring(ranks)), pairs.connect(of_ring(ranks))  # the two halves of a step by hosts
    if not entry.accelerators:
        return (pairs.connect(of_ring(ranks)),)
    return ({},)


def of_schedule(schedule: Schedule, largest: Shape, ranks: Sequence[int], limit: float) -> dict[int, list[Call]] | None:
    """What each rank asks for to carry out a schedule: every peer and channel, in their order.

    None: more than `most`.
    """
    calls, count = {}, 0
    for index, rank in enumerate(ranks):
        channels = connections(program_of(schedule, largest, index))
        calls[rank] = [(ranks[peer], channel) for peer, channel in channels]
        count += len(channels)
        if count > limit:
            return None
    return calls


def of_ring(ranks: Sequence[int]) -> dict[int, list[Call]]:
    """Likewise for a ring of hosts."""
    n = len(ranks)
    return {rank: [(ranks[peer], 0) for peer in sorted({(k + 1) % n, (k - 1) % n})] for k, rank in enumerate(ranks)}


def of_multicast(ranks: Sequence[int]) -> dict[int, list[Call]]:
    """Likewise for the messages beside multicasts: to the right and from the left for every distance."""
    n = len(ranks)
    return {
        rank: [
            call for far in distances(n) for call in ((ranks[(k + far) % n], k), (ranks[(k - far) % n], (k - far) % n))
        ]
        for k, rank in enumerate(ranks)
    }


# Several used as one, as workloads/verbs/bond.py has them


@dataclass
class _InOrder:
    """Calls are made in the order in which they were handed over: each waits for those before it."""

    waiting: deque[_Call] = field(default_factory=deque)

    def call(self, callback: Callback | None, parts: int) -> Callback:
        """What is to be called for each of the parts."""
        its = _Call(parts, callback)
        self.waiting.append(its)

        def came(t: float) -> None:
            its.missing -= 1
            while self.waiting and not self.waiting[0].missing:
                if callback := self.waiting.popleft().callback:
                    callback(t)

        return came


@dataclass
class _Call:
    missing: int
    callback: Callback | None


class Bond(Generic[Pair]):
    """`post_ns`: what a host takes for a request; messages are one, or, `split`, one for each of the members."""

    def __init__(self, members: Sequence[Pair], post_ns: float, *, split: bool) -> None:
        self._members, self._post_ns, self._split = members, post_ns, split
        self._turn = 0
        self._arrivals, self._acknowledgements = _InOrder(), _InOrder()

    def post(self, t: float, nbytes: int, received: Callback, sent: Callback | None, post: Post[Pair]) -> None:
        count = len(self._members) if self._split else 1
        arrived, acknowledged = self._arrivals.call(received, count), self._acknowledgements.call(sent, count)
        if not self._split:
            post(t, self._members[self._turn], nbytes, arrived, acknowledged)
            self._turn = (self._turn + 1) % len(self._members)
            return
        for k, (member, (_, part)) in enumerate(zip(self._members, parts(nbytes, count), strict=True)):
            post(t + k * self._post_ns, member, part, arrived, acknowledged)
