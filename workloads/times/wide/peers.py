"""The queue pairs of all ranks at once: which number of a rank's leads to which peer (queue_pairs.py)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import prod
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from workloads.times.queue_pairs import FIRST

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Ranks = NDArray[np.int64]


class Peers:
    """What each rank asks for at once: its peers in the order of the group, after what it has made before."""

    def __init__(self, peers: Iterable[Ranks], first: Ranks, order: Sequence[int] | None = None) -> None:
        """`peers`: of all ranks by number, the same one several times or not, itself for none.

        `order`: of the group, if not by number.
        `first`: the number of each rank's first one.
        """
        n = len(first)
        self._place = _places(order, n)
        table = np.stack([self._place[one] for one in peers], axis=1)
        table[table == self._place[:, None]] = n
        table = np.sort(table, axis=1)
        table[:, 1:][table[:, 1:] == table[:, :-1]] = n
        self._table = np.sort(table, axis=1)
        self._first = first
        self.made = (self._table < n).sum(axis=1)

    def __call__(self, source: Ranks, target: Ranks) -> Ranks:
        before = (self._table[source] < self._place[target][:, None]).sum(axis=1)
        return np.asarray(self._first[source] + before)


class Everybody:
    """Likewise where each asks for all others."""

    def __init__(self, first: Ranks) -> None:
        self._first = first
        self.made = np.full_like(first, len(first) - 1)

    def __call__(self, source: Ranks, target: Ranks) -> Ranks:
        return self._first[source] + target - (target > source)


class WithFirst:
    """Likewise where rank 0 asks for all others, and they for it."""

    def __init__(self, first: Ranks) -> None:
        self._first = first
        self.made = np.ones_like(first)
        self.made[0] = len(first) - 1

    def __call__(self, source: Ranks, target: Ranks) -> Ranks:
        return np.asarray(self._first[source] + np.where(source == 0, target - 1, 0))


class RingOfNics:
    """What NICs make by themselves, edge by edge: to the next, except that the first one's own comes first."""

    def __init__(self, first: Ranks, order: Sequence[int]) -> None:
        self._first, self._place = first, _places(order, len(first))
        self.made = np.full_like(first, 2)

    def __call__(self, source: Ranks, target: Ranks) -> Ranks:
        place = self._place[source]
        onward = self._place[target] == (place + 1) % len(self._first)
        return np.asarray(self._first[source] + (onward == (place > 0)))


_Some = TypeVar("_Some", Peers, Everybody, WithFirst, RingOfNics)


class Made:
    """The queue pairs of all ranks, as the steps of a file make them one after the other."""

    def __init__(self, ranks: int) -> None:
        self._next = np.full(ranks, FIRST, np.int64)
        self._ring: RingOfNics | None = None

    def numbers(self, peers: Iterable[Ranks], order: Sequence[int] | None = None) -> Peers:
        """Of what each rank asks for at once."""
        return self._counted(Peers(peers, self._next.copy(), order))

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

    def add(self, each: int) -> None:
        """So many more of every rank's."""
        self._next += each

    def _counted(self, peers: _Some) -> _Some:
        self._next += peers.made
        return peers


def neighbours(order: Sequence[int]) -> list[Ranks]:
    """Of each rank, by number: before and after it in a ring."""
    ranks = np.array(order, np.int64)
    found = []
    for by in (1, -1):
        peers = np.empty_like(ranks)
        peers[ranks] = np.roll(ranks, by)
        found.append(peers)
    return found


def on_grid(dims: Sequence[int]) -> list[Ranks]:
    """Likewise in every dimension of a grid, the last one the fastest."""
    places = np.arange(prod(dims)).reshape(tuple(dims))
    return [np.roll(places, by, axis).reshape(-1) for axis in range(len(dims)) for by in (1, -1)]


def exchanged(tos: Iterable[Ranks]) -> list[Ranks]:
    """Likewise in rounds in which rank i sends to `to[i]`: to whom, and from whom."""
    found = []
    for to in tos:
        back = np.empty_like(to)
        back[to] = np.arange(len(to))
        found += [to, back]
    return found


def in_tree(n: int) -> list[Ranks]:
    """Likewise in a binomial tree: of each rank the one above it and those below; itself where there is none."""
    me = np.arange(n)
    found = [me & (me - 1)]
    for k in range((n - 1).bit_length()):
        child = me + (1 << k)
        found.append(np.where((me & ((2 << k) - 1) == 0) & (child < n), child, me))
    found[0][0] = 0
    return found


def _places(order: Sequence[int] | None, n: int) -> Ranks:
    place = np.arange(n)
    if order is not None:
        place[np.array(order, np.int64)] = np.arange(n)
    return place
