"""Fabrics of hundreds of thousands of ranks: what every message takes, as arrays, without a graph.

A message is a pair of ranks; all messages of a round are under way together.  A *stage* is a step of all their ways at
once: which of them take a link there, and which link.  Links are numbers, each direction of a cable has its own.

Of messages that share links, max-min sharing gives the slowest its equal share of the link that most take: that link is
filled first, and a round ends with its slowest message.  So the share is all that has to be known.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from workloads.times.messages import Link, Path
from workloads.times.queue_pairs import FIRST, source_port
from workloads.times.ways import Pair, Route
from workloads.times.wide.around import Edge, Ring
from workloads.times.wide.places import Places

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from workloads.times.wide.places import Ranks, Stage

    Numbers = Callable[[Ranks, Ranks], tuple[Ranks, Ranks]]  # of the queue pairs at both ends of flows


def first_ones(source: Ranks, target: Ranks) -> tuple[Ranks, Ranks]:
    """As if there were no others."""
    return np.full_like(source, FIRST), np.full_like(target, FIRST)


@dataclass(frozen=True)
class Wide:
    """The ranks of such a fabric as ways.Ways: all cables alike, all switches alike.

    `numbers`: of the queue pairs that carry the messages, for ECMP's hash.
    """

    places: Places
    cable: Link
    latency_ns: float
    scale_up: Link | None = None
    numbers: Numbers = first_ones

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

    def route(self, pair: Pair, channel: int = 0) -> Route:
        """Of one message by itself: for a few that are followed one by one."""
        source, target = (np.array([rank], np.int64) for rank in pair)
        inside = self.places.inside(source, target) if self.scale_up else np.zeros(1, bool)
        keys = tuple(int(ids[0]) for which, ids in self.stages(source, target, inside) if which.size)
        link = self.scale_up if inside[0] and self.scale_up else self.cable
        path = self._path(source, target, None)
        return Route(keys, (link,) * len(keys), path)

    def busiest(self, traffic: Mapping[Pair, float]) -> tuple[float, Link]:
        raise NotImplementedError("bytes from rank to rank are not added up here")

    def ring(self) -> Ring:
        """All ranks in ring order."""
        source = np.array(self.places.order, np.int64)
        return self.edges(source, np.roll(source, -1))

    def edges(self, source: Ranks, target: Ranks) -> Ring:
        """Messages from each to each, all under way together."""
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
        for which, ids in self.stages(source, target, inside):
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
        for _, ids in self.stages(source, target, inside):
            loads += np.bincount(ids, minlength=len(loads))
        most, links = np.zeros(len(source), np.int64), np.zeros(len(source), np.int64)
        for which, ids in self.stages(source, target, inside):
            most[which] = np.maximum(most[which], loads[ids])
            links[which] += 1
        return inside, loads, most, links - 1

    def stages(self, source: Ranks, target: Ranks, inside: NDArray[np.bool_]) -> Iterator[Stage]:
        n = self.places.ranks
        within, out = np.flatnonzero(inside), np.flatnonzero(~inside)
        if within.size:
            yield within, 2 * n + source[within]
            yield within, 3 * n + target[within]
        yield out, source[out]
        for which, ids in self.places.between(source[out], target[out], self.ports):
            yield out[which], 4 * n + ids
        yield out, n + target[out]

    def ports(self, source: Ranks, target: Ranks, source_ip: Ranks, target_ip: Ranks) -> Ranks:
        """UDP source ports."""
        return source_port(*self.numbers(source, target), source_ip, target_ip)

    def _path(self, source: Ranks, target: Ranks, loads: NDArray[np.int64] | None) -> Path:
        """Of one message.  `loads`: messages on each link (None: no other ones)."""
        inside = self.places.inside(source, target) if self.scale_up else np.zeros(1, bool)
        shares = [
            1 if loads is None else int(loads[ids[0]])
            for which, ids in self.stages(source, target, inside)
            if which.size
        ]
        if inside[0]:
            assert self.scale_up is not None
            return Path((Link(self.scale_up.rate_bps / max(shares), self.scale_up.delay_ns),), scale_up=True)
        cables = tuple(Link(self.cable.rate_bps / max(share, 1), self.cable.delay_ns) for share in shares)
        return Path(cables, (self.latency_ns,) * (len(cables) - 1))
