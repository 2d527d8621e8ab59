"""Fabrics of hundreds of thousands of ranks: what every message takes, as arrays, without a graph.

A message is a pair of ranks; all messages of a round are under way together.  A *stage* is a step of all their ways at
once: which of them take a link there, and which link.  Links are numbers, each direction of a cable has its own.

Of messages that share links, max-min sharing gives the slowest its equal share of the link that most take: that link is
filled first, and a round ends with its slowest message.  So the share is all that has to be known.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Protocol

import numpy as np

from topologies.ranks.ring_order import snake
from workloads.times.messages import Link, Path
from workloads.times.ways import Pair, Route
from workloads.times.wide.around import Edge, Ring

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Ranks = NDArray[np.int64]
    Stage = tuple[NDArray[np.int64], NDArray[np.int64]]  # numbers of messages, and the link that each takes


class Places(Protocol):
    """Where ranks are, and how messages go from one to another beyond their own cables."""

    @property
    def ranks(self) -> int: ...

    @property
    def links(self) -> int:
        """How many links there are between switches."""

    @property
    def dims(self) -> tuple[int, ...]:
        """Of the grid that the ranks are; () if they are none."""

    @property
    def order(self) -> Sequence[int]:
        """In which a ring takes them."""

    def between(self, source: Ranks, target: Ranks) -> Iterator[Stage]:
        """The stages between the first switch and the last."""

    def inside(self, source: Ranks, target: Ranks) -> NDArray[np.bool_]:
        """Which pairs share a scale-up domain."""


@dataclass(frozen=True)
class Grid:
    """A torus or ring: a switch and a host at each place; dimension order, the shorter way round."""

    dims: tuple[int, ...]

    @property
    def ranks(self) -> int:
        return prod(self.dims)

    @property
    def links(self) -> int:
        return self.ranks * 2 * len(self.dims)

    @property
    def order(self) -> Sequence[int]:
        return snake(self.dims)

    def between(self, source: Ranks, target: Ranks) -> Iterator[Stage]:
        at = source.copy()
        for dim, n in enumerate(self.dims):
            stride = prod(self.dims[dim + 1 :])
            ahead = (target // stride - at // stride) % n
            up = ahead <= n // 2
            left = np.where(up, ahead, n - ahead)
            while (going := np.flatnonzero(left)).size:
                here = at[going]
                yield going, (here * len(self.dims) + dim) * 2 + up[going]
                place = here // stride % n
                at[going] = here + ((place + np.where(up[going], 1, -1)) % n - place) * stride
                left[going] -= 1

    def inside(self, source: Ranks, target: Ranks) -> NDArray[np.bool_]:
        return np.zeros(len(source), bool)


@dataclass(frozen=True)
class Tiers:
    """Ranks `per` to a leaf, leaves `leaves` to a pod, each joined by `spines`, and pods by `cores`.  A star: one leaf.

    Of several spines or cores one is drawn for each pair.
    """

    per: int
    leaves: int = 1
    spines: int = 0
    pods: int = 1
    cores: int = 0

    dims: tuple[int, ...] = ()

    @property
    def ranks(self) -> int:
        return self.per * self.leaves * self.pods

    @property
    def links(self) -> int:
        return 2 * self.pods * self.spines * (self.leaves + self.cores)

    @property
    def order(self) -> Sequence[int]:
        return range(self.ranks)

    def between(self, source: Ranks, target: Ranks) -> Iterator[Stage]:
        leaf = (source // self.per, target // self.per)
        pod = (leaf[0] // self.leaves, leaf[1] // self.leaves)
        far = np.flatnonzero(leaf[0] != leaf[1])
        if not far.size:
            return
        other = np.flatnonzero(pod[0] != pod[1])
        up = _drawn(source, target, 1) % self.spines
        down = np.where(pod[0] == pod[1], up, _drawn(source, target, 2) % self.spines)
        edge, above = self.pods * self.leaves * self.spines, self.pods * self.spines * self.cores
        yield far, (leaf[0] * self.spines + up)[far]
        if other.size:
            core = (_drawn(source, target, 3) % self.cores)[other]
            yield other, 2 * edge + (pod[0] * self.spines + up)[other] * self.cores + core
            yield other, 2 * edge + above + (pod[1] * self.spines + down)[other] * self.cores + core
        yield far, edge + (leaf[1] * self.spines + down)[far]

    def inside(self, source: Ranks, target: Ranks) -> NDArray[np.bool_]:
        return np.zeros(len(source), bool)


@dataclass(frozen=True)
class Rails:
    """Servers of `gpus`: NIC r of each on rail r, spines join the rails."""

    servers: int
    gpus: int
    spines: int
    scale_up: bool

    @property
    def dims(self) -> tuple[int, ...]:
        return self.servers, self.gpus

    @property
    def ranks(self) -> int:
        return self.servers * self.gpus

    @property
    def links(self) -> int:
        return 2 * self.gpus * self.spines

    @property
    def order(self) -> Sequence[int]:
        return snake(self.dims)

    def between(self, source: Ranks, target: Ranks) -> Iterator[Stage]:
        rail = (source % self.gpus, target % self.gpus)
        far = np.flatnonzero(rail[0] != rail[1])
        if far.size:
            spine = _drawn(source, target, 1) % self.spines
            yield far, (rail[0] * self.spines + spine)[far]
            yield far, (self.gpus * self.spines + rail[1] * self.spines + spine)[far]

    def inside(self, source: Ranks, target: Ranks) -> NDArray[np.bool_]:
        if not self.scale_up:
            return np.zeros(len(source), bool)
        return np.asarray(source // self.gpus == target // self.gpus)


def _drawn(source: Ranks, target: Ranks, salt: int) -> NDArray[np.int64]:
    mixed = (source * 0x9E3779B1 ^ target * 0x85EBCA6B ^ salt * 0xC2B2AE35) & 0xFFFFFFFF
    mixed = (mixed ^ mixed >> 15) * 0x27D4EB2F & 0xFFFFFFFF
    return mixed ^ mixed >> 13


@dataclass(frozen=True)
class Wide:
    """The ranks of such a fabric as ways.Ways: all cables alike, all switches alike."""

    places: Places
    cable: Link
    latency_ns: float
    scale_up: Link | None = None

    def path(self, pairs: Sequence[Pair]) -> Path:
        """What the slowest of these messages sees."""
        source, target = np.array(pairs, np.int64).T
        inside, loads, most, switches = self._taken(source, target)
        link = np.where(inside, 0.0 if self.scale_up is None else 1 / self.scale_up.rate_bps, 1 / self.cable.rate_bps)
        worst = int(np.lexsort((switches, most * link))[-1])
        return self._path(source[worst : worst + 1], target[worst : worst + 1], loads)

    def paths(self, pairs: Sequence[Pair]) -> list[Path]:
        """What each of them sees."""
        source, target = np.array(pairs, np.int64).T
        _, loads, _, _ = self._taken(source, target)
        return [self._path(source[k : k + 1], target[k : k + 1], loads) for k in range(len(pairs))]

    def route(self, pair: Pair) -> Route:
        raise NotImplementedError("messages are not followed one by one here")

    def busiest(self, traffic: Mapping[Pair, float]) -> tuple[float, Link]:
        raise NotImplementedError("bytes from rank to rank are not added up here")

    def ring(self) -> Ring:
        """All ranks in ring order."""
        source = np.array(self.places.order, np.int64)
        target = np.roll(source, -1)
        inside, loads, most, switches = self._taken(source, target)
        _, first, which = np.unique(np.stack([inside, most, switches]), axis=1, return_index=True, return_inverse=True)
        kinds = []
        for k in first:
            one = source[k : k + 1], target[k : k + 1]
            kinds.append(Edge(self._path(*one, np.ones_like(loads)), self._path(*one, loads)))
        return Ring(kinds, np.asarray(which).reshape(-1))

    def kinds(
        self, source: Ranks, target: Ranks
    ) -> tuple[list[Path], NDArray[np.intp], NDArray[np.int64], NDArray[np.int64]]:
        """What these messages see alone: paths, and which of them each has.

        And how many share the fullest of its links, the last of those; and how many cables later than the first of
        them a message comes there.
        """
        inside, loads, most, switches = self._taken(source, target)
        first_at = np.full(len(loads), len(loads), np.int64)
        passed, last, at = np.zeros((3, len(source)), np.int64)
        for which, ids in self._stages(source, target, inside):
            np.minimum.at(first_at, ids, passed[which])
            fullest = loads[ids] == most[which]
            last[which[fullest]], at[which[fullest]] = ids[fullest], passed[which[fullest]]
            passed[which] += 1
        later = at - first_at[last]
        _, first, which = np.unique(np.where(inside, -1, switches), return_index=True, return_inverse=True)
        alone = np.ones_like(loads)
        paths = [self._path(source[k : k + 1], target[k : k + 1], alone) for k in first]
        return paths, np.asarray(which).reshape(-1), most, later

    def _taken(
        self, source: Ranks, target: Ranks
    ) -> tuple[NDArray[np.bool_], NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """Which stay inside a domain; messages on each link; of each message the most on its way, and its switches."""
        n = self.places.ranks
        inside = self.places.inside(source, target) if self.scale_up else np.zeros(len(source), bool)
        loads = np.zeros(4 * n + self.places.links, np.int64)
        for _, ids in self._stages(source, target, inside):
            loads += np.bincount(ids, minlength=len(loads))
        most, links = np.zeros(len(source), np.int64), np.zeros(len(source), np.int64)
        for which, ids in self._stages(source, target, inside):
            most[which] = np.maximum(most[which], loads[ids])
            links[which] += 1
        return inside, loads, most, links - 1

    def _stages(self, source: Ranks, target: Ranks, inside: NDArray[np.bool_]) -> Iterator[Stage]:
        n = self.places.ranks
        within, out = np.flatnonzero(inside), np.flatnonzero(~inside)
        if within.size:
            yield within, 2 * n + source[within]
            yield within, 3 * n + target[within]
        yield out, source[out]
        for which, ids in self.places.between(source[out], target[out]):
            yield out[which], 4 * n + ids
        yield out, n + target[out]

    def _path(self, source: Ranks, target: Ranks, loads: NDArray[np.int64]) -> Path:
        """Of one message."""
        inside = self.places.inside(source, target) if self.scale_up else np.zeros(1, bool)
        shares = [int(loads[ids[0]]) for which, ids in self._stages(source, target, inside) if which.size]
        if inside[0]:
            assert self.scale_up is not None
            return Path((Link(self.scale_up.rate_bps / max(shares), self.scale_up.delay_ns),), scale_up=True)
        links = tuple(Link(self.cable.rate_bps / max(share, 1), self.cable.delay_ns) for share in shares)
        return Path(links, (self.latency_ns,) * (len(links) - 1))
