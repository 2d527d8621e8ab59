"""Collectives in rounds, all ranks at once: in each round every rank sends one message at most and gets one at most.

A rank posts when it has what it sends and its NIC is through with the message before.  A message takes what it takes
alone, and the time of the others' bytes on the link of its way that most messages take: max-min sharing gives each of
those the same share there, and they end together.  What others have sent there before its first packet comes is not in
its way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from topologies.graph.frames import wire_bytes
from workloads.collectives import pat as trees
from workloads.collectives.exchange import distances
from workloads.collectives.halving import Folded
from workloads.times.messages import Costs, acks_ns, line_ns, link_ns, received_ns, sent_ns

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from workloads.times.wide.fabric import Wide


class Round(NamedTuple):
    """Rank i sends so many bytes to rank `to[i]`, where they are reduced or kept; to itself: it sends nothing.

    `messages`: they go in so many, of which all but the last are reduced while the next ones come in.
    """

    nbytes: int
    to: NDArray[np.int64]
    reduce: bool = False
    messages: int = 1


Rounds = Callable[[int, int, int], Iterator[Round]]
"""Of so many ranks, and so many elements in all, of so many bytes each."""


def halving(ranks: int, count: int, width: int) -> Iterator[Round]:
    """For powers of two."""
    me, far = np.arange(ranks), ranks // 2
    while far:
        count = -(-count // 2)
        yield Round(count * width, me ^ far, True)
        far //= 2


def doubling(ranks: int, count: int, width: int) -> Iterator[Round]:
    """The same backwards."""
    return (one._replace(reduce=False) for one in reversed(list(halving(ranks, count, width))))


def halving_doubling(ranks: int, count: int, width: int) -> Iterator[Round]:
    """For any number."""
    if ranks & ranks - 1:
        return _folded(Folded(ranks), count, width)
    return chain(halving(ranks, count, width), doubling(ranks, count, width))


def bruck(ranks: int, count: int, width: int) -> Iterator[Round]:
    """To those before."""
    me, chunk = np.arange(ranks), -(-count // ranks) * width
    return (Round(chunk * min(far, ranks - far), (me - far) % ranks) for far in distances(ranks))


def pairwise(ranks: int, count: int, width: int) -> Iterator[Round]:
    """To everybody in turn."""
    me, chunk = np.arange(ranks), -(-count // ranks) * width
    return (Round(chunk, (me + far) % ranks) for far in range(1, ranks))


def whole_doubling(ranks: int, count: int, width: int) -> Iterator[Round]:
    """All of the vector in every round; for any number, as halving and doubling."""
    folded = Folded(ranks)
    place = np.arange(folded.participants)
    rank = np.array([folded.rank(p) for p in place.tolist()])
    stands, other = 2 * np.arange(folded.extra), 2 * np.arange(folded.extra) + 1
    if folded.extra:
        yield Round(count * width, _among(ranks, other, stands), True)
    for far in distances(folded.participants):
        yield Round(count * width, _among(ranks, rank, rank[place ^ far]), True)
    if folded.extra:
        yield Round(count * width, _among(ranks, stands, other))


def _among(ranks: int, source: NDArray[np.int64], target: NDArray[np.int64]) -> NDArray[np.int64]:
    to = np.arange(ranks)
    to[source] = target
    return to


def hypercube(ranks: int, count: int, width: int) -> Iterator[Round]:
    """Half of it, for powers of two."""
    me, half = np.arange(ranks), ranks // 2 * -(-count // ranks) * width
    return (Round(half, me ^ far) for far in distances(ranks))


def pat(ranks: int, count: int, width: int, *, back: bool = False) -> Iterator[Round]:
    """As many chunks in a message and a round as NCCL's buffers have room for; a larger chunk in one."""
    me, chunk = np.arange(ranks), -(-count // ranks) * width
    room = trees.room(ranks, chunk, trees.BUFFER_BYTES)
    for far, come in (trees.backwards if back else trees.rounds)(ranks, room.round):
        messages = -(-len(come) // room.message) * max(1, -(-chunk // trees.BUFFER_BYTES))
        yield Round(len(come) * chunk, (me - far if back else me + far) % ranks, back, messages)


def trees_in_rounds(ranks: int, count: int, width: int) -> int:
    """How many rounds these have."""
    return len(trees.rounds(ranks, trees.room(ranks, -(-count // ranks) * width, trees.BUFFER_BYTES).round))


def dissemination(ranks: int, count: int, width: int) -> Iterator[Round]:
    """Empty messages."""
    return (Round(0, (np.arange(ranks) + far) % ranks) for far in distances(ranks))


def shift(ranks: int, count: int, width: int) -> Iterator[Round]:
    """To the next."""
    yield Round(count * width, (np.arange(ranks) + 1) % ranks)


def _folded(folded: Folded, count: int, width: int) -> Iterator[Round]:
    """Halving and doubling among a power of two of the ranks, to which the others' vectors go first, and come back.

    Who waits for a vector is late, and says with an empty message when it has it (collectives/halving.py).
    """
    place = np.arange(folded.participants)
    rank = np.array([folded.rank(p) for p in range(folded.participants)])
    stands, other = 2 * np.arange(folded.extra), 2 * np.arange(folded.extra) + 1

    among = partial(_among, folded.ranks)

    yield Round(count * width, among(other, stands), True)
    halves, left, far, late = [], count, folded.participants // 2, place < folded.extra
    while far:
        first = np.flatnonzero(late & ~late[place ^ far])
        if first.size:
            yield Round(0, among(rank[first], rank[first ^ far]))
        left = -(-left // 2)
        halves.append(Round(left * width, among(rank, rank[place ^ far]), True))
        yield halves[-1]
        late, far = late | late[place ^ far], far // 2
    yield from (r._replace(reduce=False) for r in reversed(halves))
    yield Round(count * width, among(stands, other))


class _Message(NamedTuple):
    """Of each that sends: until it is received, until that is known, and how long it keeps its own cable."""

    received: NDArray[np.float64]
    acknowledged: NDArray[np.float64]
    busy: NDArray[np.float64]


def rounds_ns(rounds: Iterator[Round], ways: Wide, costs: Costs, *, paced: bool = False) -> float:
    """Time in ns.  `paced`: who has not heard that its message has arrived sends no further one."""
    n = ways.places.ranks
    ready, free, known = np.zeros(n), np.zeros(n), np.zeros(n)
    for a_round in rounds:
        senders = np.flatnonzero(a_round.to != np.arange(n))
        receivers = a_round.to[senders]
        elapsed = _messages(a_round.nbytes, senders, receivers, ways, costs)
        ready[senders] += costs.post_ns * a_round.messages
        begin = np.maximum(ready, free)[senders]
        free[senders], known[senders] = begin + elapsed.busy, begin + elapsed.acknowledged
        ready[receivers] = np.maximum(ready[receivers], begin + elapsed.received)
        one = costs.wake_ns + a_round.reduce * costs.reduce_ns(-(-a_round.nbytes // a_round.messages))
        waits = np.maximum(one - elapsed.busy / a_round.messages, 0.0)  # for the host's being through with those before
        ready[receivers] += one + (a_round.messages - 1) * waits
        if paced:
            ready = np.where(known <= ready, ready, known + costs.wake_ns)
    return float(np.where(known <= ready, ready, known + costs.wake_ns).max())


def _messages(nbytes: int, source: NDArray[np.intp], target: NDArray[np.int64], ways: Wide, costs: Costs) -> _Message:
    """Messages are of few kinds: by their way, and by how many share it."""
    first = wire_bytes(min(nbytes, costs.mtu), costs.later_reth + costs.behind_bytes)
    kinds, which, most, later = ways.crowded(source, target, first)

    def of_each(path_ns: list[float]) -> NDArray[np.float64]:
        return np.array(path_ns)[which]

    acks = of_each([acks_ns(nbytes, path, costs) for path in kinds])
    lines = of_each([line_ns(nbytes, path, costs) for path in kinds])
    usual = of_each([link_ns(nbytes, ways.usual(path), costs) for path in kinds])
    others = np.maximum(most * usual - lines - later, 0.0)
    return _Message(
        of_each([received_ns(nbytes, path, costs) for path in kinds]) + acks + others,
        of_each([sent_ns(nbytes, path, costs) for path in kinds]) + acks + others,
        of_each([line_ns(nbytes, path.first, costs) for path in kinds]),
    )
