"""Fabrics of hundreds of thousands of ranks: what every message takes, as arrays, without a graph.

A message is a pair of ranks; all messages of a round are under way together.  A *stage* is a step of all their ways at
once: which of them take a link there, and which link.  Links are numbers, each direction of a cable has its own.

Of messages that share links, max-min sharing gives the slowest its equal share of the link that is busy longest: that
link is filled first, and a round ends with its slowest message.  So the share is all that has to be known.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from topologies.ranks.multipath import BY_NUMBER, Hashing, member
from workloads.times.messages import Link, Path
from workloads.times.queue_pairs import FIRST, source_port
from workloads.times.ways import Pair, Route
from workloads.times.wide.around import Edge, Ring
from workloads.times.wide.cables import Cables
from workloads.times.wide.places import Places

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from workloads.times.wide.places import Hashed, Ranks, Stage

    Numbers = Callable[[Ranks, Ranks], tuple[Ranks, Ranks]]  # of the queue pairs at both ends of flows


def first_ones(source: Ranks, target: Ranks) -> tuple[Ranks, Ranks]:
    """As if there were no others."""
    return np.full_like(source, FIRST), np.full_like(target, FIRST)


class _Traffic(NamedTuple):
    """Which messages stay inside a domain; how many are on each link.

    And of each message: what is on the link of its way that is busy longest, as messages on a usual one; its switches;
    the delays of its links beyond those of usual ones; the sum of its links' signs (cables.py).
    """

    inside: NDArray[np.bool_]
    loads: NDArray[np.int64]
    most: NDArray[np.float64]
    switches: NDArray[np.int64]
    longer: NDArray[np.float64]
    like: NDArray[np.int64]


@dataclass(frozen=True)
class Wide:
    """The ranks of such a fabric as ways.Ways: all switches alike.

    `cable`: what its cables are, but for those that `own` has.  `numbers`: of the queue pairs that carry the messages,
    for ECMP's hash, which is as `hashing` says.  `dateline`: what has to cross it on a grid has a class of its own.
    `fixed_port`: all queue pairs have the same source port.
    """

    places: Places
    cable: Link
    latency_ns: float
    scale_up: Link | None = None
    numbers: Numbers = first_ones
    own: Cables | None = None
    dateline: bool = True
    hashing: Hashing = BY_NUMBER
    fixed_port: bool = False

    def path(self, pairs: Sequence[Pair]) -> Path:
        """What the slowest of these messages sees."""
        source, target = np.array(pairs, np.int64).T
        traffic = self._traffic(source, target)
        usual = 0.0 if self.scale_up is None else 1 / self.scale_up.rate_bps
        link = np.where(traffic.inside, usual, 1 / self.cable.rate_bps)
        far = traffic.switches * (self.cable.delay_ns + self.latency_ns) + traffic.longer
        worst = int(np.lexsort((far, traffic.most * link))[-1])
        return self._path(source[worst : worst + 1], target[worst : worst + 1], traffic.loads)

    def paths(self, pairs: Sequence[Pair]) -> list[Path]:
        """What each of them sees."""
        source, target = np.array(pairs, np.int64).T
        loads = self._traffic(source, target).loads
        return [self._path(source[k : k + 1], target[k : k + 1], loads) for k in range(len(pairs))]

    def route(self, pair: Pair, channel: int = 0, lane: int = 0) -> Route:
        """Of one message by itself: for a few that are followed one by one."""
        source, target = (np.array([rank], np.int64) for rank in pair)
        keys = tuple(self._links(source, target))
        path = self._path(source, target, None)
        second = tuple(self._across(keys, pair[1])) if self.dateline and not path.scale_up else ()
        return Route(keys, path.links * (len(keys) if path.scale_up else 1), path, second)

    def busiest(self, traffic: Mapping[Pair, float]) -> tuple[float, Link]:
        raise NotImplementedError("bytes from rank to rank are not added up here")

    def ring(self) -> Ring:
        """All ranks in ring order."""
        source = np.array(self.places.order, np.int64)
        return self.edges(source, np.roll(source, -1))

    def edges(self, source: Ranks, target: Ranks) -> Ring:
        """Messages from each to each, all under way together."""
        inside, loads, most, switches, _, like = self._traffic(source, target)
        rows = np.stack([inside, most, switches, like])
        _, first, which = np.unique(rows, axis=1, return_index=True, return_inverse=True)
        kinds = []
        for k in first:
            one = source[k : k + 1], target[k : k + 1]
            kinds.append(Edge(self._path(*one, None), self._path(*one, loads)))
        return Ring(kinds, np.asarray(which).reshape(-1))

    def alone(self, source: Ranks, target: Ranks) -> tuple[list[Path], NDArray[np.intp]]:
        """What these messages see alone: paths, and which of them each has."""
        return self._alone(source, target, self._traffic(source, target))

    def crowded(
        self, source: Ranks, target: Ranks, packet_bytes: int
    ) -> tuple[list[Path], NDArray[np.intp], NDArray[np.float64], NDArray[np.float64]]:
        """Likewise; and what is on the link of each one's way that is busy longest, as messages on a usual one.

        And how much later than the first of those a packet of so many bytes comes there.
        """
        traffic = self._traffic(source, target)
        loads, most = traffic.loads, traffic.most
        first_ns = np.full(len(loads), np.inf)
        passed_ns, at_ns = np.zeros((2, len(source)))
        last = np.zeros(len(source), np.int64)
        kinds = self.own.kinds if self.own else (self.cable,)
        hop_ns = np.array([link.time_ns(packet_bytes) + link.delay_ns + self.latency_ns for link in kinds])
        for which, ids in self.stages(source, target, traffic.inside):
            np.minimum.at(first_ns, ids, passed_ns[which])
            fullest = self._busy(loads, ids) == most[which]
            last[which[fullest]], at_ns[which[fullest]] = ids[fullest], passed_ns[which[fullest]]
            passed_ns[which] += hop_ns[self.own.which[ids]] if self.own else hop_ns[0]
        return *self._alone(source, target, traffic), most, at_ns - first_ns[last]

    def likeness(self, source: Ranks, target: Ranks) -> Ranks:
        """The same of messages over links that are alike."""
        return self._traffic(source, target).like

    def usual(self, path: Path) -> Link:
        """What links are of which such a path is made, but for those that differ from others."""
        return self.scale_up if path.scale_up and self.scale_up else self.cable

    def _alone(self, source: Ranks, target: Ranks, traffic: _Traffic) -> tuple[list[Path], NDArray[np.intp]]:
        rows = np.where(traffic.inside, -1, traffic.switches)
        if self.own:
            rows = np.stack([rows, traffic.like])
        _, first, which = np.unique(rows, axis=-1, return_index=True, return_inverse=True)
        paths = [self._path(source[k : k + 1], target[k : k + 1], None) for k in first]
        return paths, np.asarray(which).reshape(-1)

    def _traffic(self, source: Ranks, target: Ranks) -> _Traffic:
        n = self.places.ranks
        inside = self.inside(source, target)
        loads = np.zeros(4 * n + self.places.links, np.int64)
        for _, ids in self.stages(source, target, inside):
            loads += np.bincount(ids, minlength=len(loads))
        most, longer = np.zeros((2, len(source)))
        links, like = np.zeros((2, len(source)), np.int64)
        for which, ids in self.stages(source, target, inside):
            most[which] = np.maximum(most[which], self._busy(loads, ids))
            links[which] += 1
            if self.own:
                kind = self.own.which[ids]
                like[which] += self.own.signs[kind]
                longer[which] += self.own.longer_ns[kind]
        return _Traffic(inside, loads, most, links - 1, longer, like)

    def _busy(self, loads: NDArray[np.int64], ids: Ranks) -> NDArray[np.float64]:
        """What is on these links, as messages on a usual one."""
        return loads[ids] * self.own.slowness[self.own.which[ids]] if self.own else loads[ids].astype(float)

    def inside(self, source: Ranks, target: Ranks) -> NDArray[np.bool_]:
        """Which of these messages stay inside a scale-up domain."""
        return self.places.inside(source, target) if self.scale_up else np.zeros(len(source), bool)

    def stages(self, source: Ranks, target: Ranks, inside: NDArray[np.bool_] | None = None) -> Iterator[Stage]:
        n = self.places.ranks
        if inside is None:
            inside = self.inside(source, target)
        within, out = np.flatnonzero(inside), np.flatnonzero(~inside)
        if within.size:
            yield within, 2 * n + source[within]
            yield within, 3 * n + target[within]
        yield out, source[out]
        for which, ids in self.places.between(source[out], target[out], self.flows):
            yield out[which], 4 * n + ids
        yield out, n + target[out]

    def flows(self, source: Ranks, target: Ranks, source_ip: Ranks, target_ip: Ranks) -> Hashed:
        """Of these flows, which of several equal ports each takes."""
        own, peer = self.numbers(source, target)
        port = source_port(own, peer, source_ip, target_ip, fixed=self.fixed_port)
        looked, basis = peer if self.hashing.dest_qp else None, self.hashing.basis
        return lambda dpid, members: member(source_ip, target_ip, port, basis(dpid), members, looked)

    def _links(self, source: Ranks, target: Ranks) -> list[int]:
        """The numbers of one message's links."""
        return [int(ids[0]) for which, ids in self.stages(source, target) if which.size]

    def _across(self, keys: Sequence[int], target: int) -> Sequence[bool]:
        """Which of a way's links are before a dateline; the last one as the one before (Hops.across)."""
        between = self.places.across([key - 4 * self.places.ranks for key in keys[1:-1]], target)
        return (False, *between, between[-1]) if between else ()

    def _path(self, source: Ranks, target: Ranks, loads: NDArray[np.int64] | None) -> Path:
        """Of one message.  `loads`: messages on each link (None: no other ones)."""
        links = self._links(source, target)
        shares = [1 if loads is None else max(int(loads[k]), 1) for k in links]
        if self.scale_up and links[0] >= 2 * self.places.ranks:
            return Path((Link(self.scale_up.rate_bps / max(shares), self.scale_up.delay_ns),), scale_up=True)
        kinds = [self.cable if self.own is None else self.own.kinds[self.own.which[k]] for k in links]
        cables = tuple(Link(k.rate_bps / share, k.delay_ns) for k, share in zip(kinds, shares, strict=True))
        return Path(cables, (self.latency_ns,) * (len(cables) - 1))


class CachedWays(Wide):
    """Rounds that repeat the same pairs are looked at once."""

    def __init__(self, ways: Wide) -> None:
        super().__init__(**{field.name: getattr(ways, field.name) for field in fields(ways)})
        object.__setattr__(self, "_known", {})

    def path(self, pairs: Sequence[Any]) -> Any:
        known: dict[int, tuple[Any, Any]] = self._known  # type: ignore[attr-defined]
        if id(pairs) not in known:
            known[id(pairs)] = pairs, super().path(pairs)  # kept, so that its id stays its own
        return known[id(pairs)][1]
