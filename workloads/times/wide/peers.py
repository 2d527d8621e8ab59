"""The queue pairs of all ranks at once: which numbers those have that lead from ranks to others (queue_pairs.py)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from math import prod
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from workloads.times.queue_pairs import FIRST, QueuePairs

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from workloads.times.queue_pairs import Call
    from workloads.times.queue_pairs import Numbers as Flows
    from workloads.times.wide.fabric import Numbers

    Ranks = NDArray[np.int64]


class _Pairs(ABC):
    """`made`: how many each rank has made."""

    made: Ranks

    def __call__(self, source: Ranks, target: Ranks, channel: int | Ranks = 0) -> tuple[Ranks, Ranks]:
        """The numbers at both ends of flows from each to each."""
        return self._at(source, target, channel), self._at(target, source, channel)

    @abstractmethod
    def _at(self, rank: Ranks, peer: Ranks, channel: int | Ranks) -> Ranks:
        """The numbers of the ranks' own ones."""


class Peers(_Pairs):
    """What each rank asks for at once: its peers in the order of the group, after what it has made before."""

    def __init__(
        self,
        peers: Iterable[Ranks],
        first: Ranks,
        order: Sequence[int] | None = None,
        channels: Sequence[int] | None = None,
    ) -> None:
        """`peers`: of all ranks by number, the same one several times or not, itself for none.

        `order`: of the group, if not by number. `first`: the number of each rank's first one. `channels`: of each of
        `peers`, if there are several; what leads to one peer is in their order.
        """
        n = len(first)
        self._place = _places(order, n)
        places = np.stack([self._place[one] for one in peers], axis=1)
        each = np.zeros(places.shape[1], np.int64) if channels is None else np.array(channels)
        self._channels = int(each.max()) + 1
        none = n * self._channels
        table = np.where(places == self._place[:, None], none, places * self._channels + each)
        table = np.sort(table, axis=1)
        table[:, 1:][table[:, 1:] == table[:, :-1]] = none
        self._table = np.sort(table, axis=1)
        self._first = first
        self.made = (self._table < none).sum(axis=1)

    def _at(self, rank: Ranks, peer: Ranks, channel: int | Ranks) -> Ranks:
        wanted = self._place[peer] * self._channels + channel
        return np.asarray(self._first[rank] + (self._table[rank] < wanted[:, None]).sum(axis=1))


class Everybody(_Pairs):
    """Likewise where each asks for all others."""

    def __init__(self, first: Ranks) -> None:
        self._first = first
        self.made = np.full_like(first, len(first) - 1)

    def _at(self, rank: Ranks, peer: Ranks, channel: int | Ranks) -> Ranks:
        return self._first[rank] + peer - (peer > rank)


class WithFirst(_Pairs):
    """Likewise where rank 0 asks for all others, and they for it."""

    def __init__(self, first: Ranks) -> None:
        self._first = first
        self.made = np.ones_like(first)
        self.made[0] = len(first) - 1

    def _at(self, rank: Ranks, peer: Ranks, channel: int | Ranks) -> Ranks:
        return np.asarray(self._first[rank] + np.where(rank == 0, peer - 1, 0))


class RingOfNics(_Pairs):
    """What NICs make by themselves, edge by edge: to the next, except that the first one's own comes first."""

    def __init__(self, first: Ranks, order: Sequence[int]) -> None:
        self._first, self._place = first, _places(order, len(first))
        self.made = np.full_like(first, 2)

    def _at(self, rank: Ranks, peer: Ranks, channel: int | Ranks) -> Ranks:
        place = self._place[rank]
        onward = self._place[peer] == (place + 1) % len(self._first)
        return np.asarray(self._first[rank] + (onward == (place > 0)))


_Some = TypeVar("_Some", Peers, Everybody, WithFirst, RingOfNics)


class ConnectedPairs:
    """The queue pairs of all ranks, as the steps of a file make them one after the other."""

    def __init__(self, ranks: int, before: Mapping[int, int] | None = None) -> None:
        """`before`: how many some ranks have made already."""
        self._next = np.full(ranks, FIRST, np.int64)
        for rank, count in (before or {}).items():
            self._next[rank] += count
        self._ring: RingOfNics | None = None

    def numbers(
        self, peers: Iterable[Ranks], order: Sequence[int] | None = None, channels: Sequence[int] | None = None
    ) -> Peers:
        """Of what each rank asks for at once."""
        return self._counted(Peers(peers, self._next.copy(), order, channels))

    # What trees, chains and two rings of hosts in a group's `order` ask for: for a tree's edges, for a ring's

    def linear(self, order: Sequence[int]) -> tuple[Numbers, Numbers]:
        """Of what leads straight to or from the first."""
        one = self.with_first()
        return one, one

    def chain(self, order: Sequence[int]) -> tuple[Numbers, Numbers]:
        """From one to the next."""
        one = self.numbers(_open(neighbours(order), order), order)
        return one, one

    def both_ways(self, order: Sequence[int]) -> tuple[Numbers, Numbers]:
        """Of two rings that go round the other way each."""
        pairs = self.numbers(2 * neighbours(order), order, [0, 0, 1, 1])
        one = partial(_onward, pairs, _places(order, len(order)))
        return one, one

    def tree(self, order: Sequence[int]) -> tuple[Numbers, Numbers]:
        """Of a binomial one."""
        one = self.numbers(_in_order(in_tree(len(order)), order), order)
        return one, one

    def tree_and_ring(self, order: Sequence[int]) -> tuple[Numbers, Numbers]:
        """Of both, one after the other."""
        tree = _in_order(in_tree(len(order)), order)
        its = self.numbers([*tree, *neighbours(order)], order, [0] * len(tree) + [1, 1])
        return its, partial(its, channel=1)

    def everybody(self) -> Everybody:
        """Likewise where each asks for all others."""
        return self._counted(Everybody(self._next.copy()))

    def with_first(self) -> WithFirst:
        """Likewise where each asks for rank 0 alone."""
        return self._counted(WithFirst(self._next.copy()))

    def ring(self, order: Sequence[int]) -> RingOfNics:
        """What NICs make by themselves around all ranks: once, and an earlier step's are used again."""
        if self._ring is None:
            self._ring = self._counted(RingOfNics(self._next.copy(), order))
        return self._ring

    def connected(self, calls: Mapping[int, Sequence[Call]]) -> Flows:
        """What each rank asks for, one by one: peers and channels in its order."""
        pairs = QueuePairs()
        pairs.recount(self.counts())
        numbers = pairs.connect(calls)
        for rank, own in calls.items():
            self._next[rank] += len(own)
        return numbers

    def counts(self) -> dict[int, int]:
        """How many each rank has made."""
        return dict(enumerate((self._next - FIRST).tolist()))

    def add(self, each: int) -> None:
        """So many more of every rank's."""
        self._next += each

    def _counted(self, peers: _Some) -> _Some:
        self._next += peers.made
        return peers


def neighbours(order: Sequence[int]) -> list[Ranks]:
    """Of each rank, by number: before and after it in a ring."""
    ranks = np.array(order, np.int64)
    both = []
    for by in (1, -1):
        peers = np.empty_like(ranks)
        peers[ranks] = np.roll(ranks, by)
        both.append(peers)
    return both


def _open(ring: Sequence[Ranks], order: Sequence[int]) -> list[Ranks]:
    """A ring's neighbours without those beyond the first and the last rank."""
    before, after = (peers.copy() for peers in ring)
    before[order[0]], after[order[-1]] = order[0], order[-1]
    return [before, after]


def _in_order(peers: Iterable[Ranks], order: Sequence[int]) -> list[Ranks]:
    """By rank, of peers by place in a group's order."""
    ranks, by_rank = np.array(order, np.int64), []
    for one in peers:
        peer_of = np.empty_like(ranks)
        peer_of[ranks] = ranks[one]
        by_rank.append(peer_of)
    return by_rank


def _onward(numbers: Peers, place: Ranks, source: Ranks, target: Ranks) -> tuple[Ranks, Ranks]:
    """Of two rings the one that leads from each to each: the first goes to the next, the second to the one before."""
    back = (place[target] - place[source]) % len(place) != 1
    return numbers(source, target, back.astype(np.int64))


def on_grid(dims: Sequence[int]) -> list[Ranks]:
    """Likewise in every dimension of a grid, the last one the fastest."""
    places = np.arange(prod(dims)).reshape(tuple(dims))
    return [np.roll(places, by, axis).reshape(-1) for axis in range(len(dims)) for by in (1, -1)]


def exchanged(tos: Iterable[Ranks]) -> list[Ranks]:
    """Likewise in rounds in which rank i sends to `to[i]`, or, where that is itself, to nobody: to whom, from whom."""
    rounds = []
    for to in tos:
        back = np.arange(len(to))
        senders = np.flatnonzero(to != back)
        back[to[senders]] = senders
        rounds += [to, back]
    return rounds


def in_tree(n: int) -> list[Ranks]:
    """Likewise in a binomial tree: of each rank the one above it and those below; itself where there is none."""
    me = np.arange(n)
    peers = [me & (me - 1)]
    for k in range((n - 1).bit_length()):
        child = me + (1 << k)
        peers.append(np.where((me & ((2 << k) - 1) == 0) & (child < n), child, me))
    peers[0][0] = 0
    return peers


def _places(order: Sequence[int] | None, n: int) -> Ranks:
    place = np.arange(n)
    if order is not None:
        place[np.array(order, np.int64)] = np.arange(n)
    return place
