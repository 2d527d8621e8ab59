"""The cables of a large fabric where some differ from the others: what each link is, by its number.

Ranks' own links come first (up, then down), then those of scale-up domains, then those between switches (fabric.py).
Parts have the names that they have in the graph of a small fabric of the kind (topologies/kinds).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from workloads.times.messages import Link
from workloads.times.wide.places import Grid, Places, Rails, Tiers

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Ids = NDArray[np.int64]
    Values = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Cables:
    """Link i is `kinds[which[i]]`; `kinds[0]` is the usual one."""

    kinds: tuple[Link, ...]
    which: NDArray[np.int16]

    @classmethod
    def of(cls, usual: Link, rate_bps: Values, delay_ns: Values) -> Cables | None:
        """Of each link's rate and delay; None where all are usual ones."""
        distinct, which = np.unique(np.stack([rate_bps, delay_ns]), axis=1, return_inverse=True)
        kinds = [Link(float(rate), float(delay)) for rate, delay in distinct.T]
        if kinds == [usual]:
            return None
        order = list(dict.fromkeys([usual, *kinds]))
        at = np.array([order.index(kind) for kind in kinds], np.int16)
        return cls(tuple(order), at[np.asarray(which).reshape(-1)])

    @cached_property
    def slowness(self) -> Values:
        """Of each kind: what a byte takes, in times of the usual one."""
        return np.array([self.kinds[0].rate_bps / kind.rate_bps for kind in self.kinds])

    @cached_property
    def longer_ns(self) -> Values:
        """Of each kind: its delay beyond the usual one's."""
        return np.array([kind.delay_ns - self.kinds[0].delay_ns for kind in self.kinds])

    @cached_property
    def signs(self) -> Ids:
        """Of each kind a number: where the sums of two ways are equal, so are their links, in whatever order."""
        signs = np.random.default_rng(1).integers(1, 1 << 40, len(self.kinds))
        signs[0] = 0
        return signs

    def worst(self, ranks: int) -> Link:
        """The least rate and the longest delay of all cables."""
        kinds = [self.kinds[k] for k in np.union1d(self.which[: 2 * ranks], self.which[4 * ranks :])]
        return Link(min(kind.rate_bps for kind in kinds), max(kind.delay_ns for kind in kinds))

    def tiers(self, ranks: int) -> tuple[Link, Link] | None:
        """Ranks' own links and all others, where each are alike."""
        own, others = self.which[: 2 * ranks], self.which[4 * ranks :]
        if (own != own[0]).any() or (others != others[:1]).any():
            return None
        return self.kinds[own[0]], self.kinds[others[0] if others.size else 0]

    @classmethod
    def of_tiers(cls, tiers: tuple[Link, Link], ranks: int, links: int) -> Cables:
        """Likewise of another fabric, with so many links between its switches."""
        own, others = tiers
        which = np.zeros(4 * ranks + links, np.int16)
        which[: 2 * ranks] = own != others
        return cls((others, own), which)


class LinkIndex:
    """Of a fabric by its parts: what leads from where to where."""

    def __init__(self, places: Places) -> None:
        self._places = places
        self.source, self.target = places.ends()
        self._switches = int(self.source.max(initial=0)) + 1
        self._order = np.argsort(self._key(self.source, self.target), kind="stable")
        self._keys = self._key(self.source, self.target)[self._order]

    @property
    def missing(self) -> Ids:
        """Numbers between switches that no link has."""
        return 4 * self._places.ranks + np.flatnonzero(self.target < 0)

    @property
    def count(self) -> int:
        """Of all links."""
        return 4 * self._places.ranks + self._places.links

    def of_host(self, rank: int) -> Ids:
        """Its own, up and down."""
        return np.array([rank, self._places.ranks + rank])

    def between(self, source: Ids, target: Ids) -> Ids:
        """From each of these switches to each; -1: there is none."""
        at = np.searchsorted(self._keys, keys := self._key(source, target))
        at = np.minimum(at, max(len(self._keys) - 1, 0))
        exists = self._keys[at] == keys if len(self._keys) else np.zeros(len(keys), bool)
        return np.where(exists, 4 * self._places.ranks + self._order[at] if len(self._keys) else -1, -1)

    def of_switch(self, switch: int) -> Ids:
        """All that lead to or from it."""
        links = np.flatnonzero((self.target >= 0) & ((self.source == switch) | (self.target == switch)))
        ranks = np.arange(self._places.ranks)
        own = ranks[self._places.leaf(ranks) == switch]
        return np.concatenate([own, len(ranks) + own, 4 * len(ranks) + links])

    def _key(self, source: Ids, target: Ids) -> Ids:
        return np.where(target < 0, -1, source * self._switches + target)


def host_called(places: Places, name: str) -> int | None:
    """The rank of a host's name."""
    if isinstance(places, Rails):
        match = re.fullmatch(r"h(\d+)\.(\d+)", name)
        server, gpu = (int(match[1]), int(match[2])) if match else (-1, -1)
        return server * places.gpus + gpu if 0 <= server < places.servers and gpu < places.gpus else None
    match = re.fullmatch(r"h(\d+)", name)
    return int(match[1]) if match and int(match[1]) < places.ranks else None


def switch_called(places: Places, name: str) -> int | None:
    """The number of a switch's name."""
    match places:
        case Grid(dims):
            named = re.fullmatch(r"sw(\d+(?:-\d+)*)", name)
            at = [int(k) for k in named[1].split("-")] if named else []
            inside = len(at) == len(dims) and all(k < n for k, n in zip(at, dims, strict=True))
            return int(np.ravel_multi_index(at, dims)) if inside else None
        case Rails(_, gpus, spines):
            tiers = {"rail": gpus, "spine": spines}
        case Tiers(_, leaves, spines, pods, cores):
            tiers = {"leaf": leaves * pods, "spine": spines * pods, "core": cores} if spines else {"sw": 1}
    named, first = re.fullmatch(r"([a-z]+)(\d+)", name), 0
    for tier, count in tiers.items():
        if named and named[1] == tier and int(named[2]) < count:
            return first + int(named[2])
        first += count
    return None
