"""What messages between the ranks of a group share: the paths that formulas of collectives are computed over.

Several messages at a time divide the rate of the cable that they have in common; each then sees a path with that share.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Protocol

from topologies.ranks.hops import Hops
from workloads.times.messages import Link, Path
from workloads.times.queue_pairs import Numbers, source_port

Pair = tuple[int, int]  # indices in the group: from, to


@dataclass(frozen=True)
class Route:
    """A way by itself: its links in order, each with a key that tells who shares it.

    `second`: on which of them it is in the second of two classes that take turns (none: on no one).
    """

    keys: tuple[Hashable, ...]
    links: tuple[Link, ...]
    path: Path
    second: tuple[bool, ...] = ()

    @property
    def scale_up(self) -> bool:
        """Out of one GPU and into the other, at the same time."""
        return self.path.scale_up


class Ways(Protocol):
    """How the ranks of a group reach each other."""

    def route(self, pair: Pair, channel: int = 0) -> Route:
        """What a message takes, whoever else does."""

    def paths(self, pairs: Sequence[Pair]) -> list[Path]:
        """What each of these messages sees when all are under way together."""

    def path(self, pairs: Sequence[Pair]) -> Path:
        """What the slowest of them sees."""

    def busiest(self, traffic: Mapping[Pair, float]) -> tuple[float, Link]:
        """Of so many bytes from rank to rank, those that the busiest cable (in time) carries, and that cable."""


@dataclass(frozen=True)
class Routed:
    """The ranks `ranks` of a fabric, as its controller routes.

    `links`: a cable in one direction, by the nodes that it leads from and to.  `latency_ns`: of every switch.
    `scale_up`: the link of a domain's GPUs.  `numbers`: of the queue pairs, where they are known, for ECMP's hash.
    `dateline`: what has to cross it on a grid has a class of its own.
    """

    hops: Hops
    ranks: Sequence[int]
    links: Mapping[tuple[str, str], Link]
    latency_ns: Mapping[str, float]
    scale_up: Link | None = None
    numbers: Numbers = field(default_factory=dict)
    dateline: bool = True

    def route(self, pair: Pair, channel: int = 0) -> Route:
        keys = tuple(self._way(pair, channel))
        second = self.hops.across(keys) if self.dateline and keys[0][0] != _OUT else ()
        links = tuple(self._link(key) for key in keys)
        return Route(keys, links, self._path(keys, dict.fromkeys(keys, 1.0)), second)

    def paths(self, pairs: Sequence[Pair]) -> list[Path]:
        loads = self._loads(dict.fromkeys(pairs, 1.0))
        return [self._path(self._way(pair), loads) for pair in pairs]

    def path(self, pairs: Sequence[Pair]) -> Path:
        key = tuple(pairs)
        if key not in self._slowest:
            self._slowest[key] = slowest(list({id(path): path for path in self.paths(pairs)}.values()))
        return self._slowest[key]

    def busiest(self, traffic: Mapping[Pair, float]) -> tuple[float, Link]:
        loads = self._loads(traffic)
        best = max(loads, key=lambda key: loads[key] / self._link(key).rate_bps, default=None)
        return (loads[best], self._link(best)) if best else (0.0, next(iter(self.links.values())))

    def _link(self, key: tuple[str, str]) -> Link:
        return self.scale_up if self.scale_up and key[0] in (_OUT, _INTO) else self.links[key]

    @cached_property
    def _ways(self) -> dict[tuple[Pair, int], list[tuple[str, str]]]:
        return {}

    @cached_property
    def _slowest(self) -> dict[tuple[Pair, ...], Path]:
        return {}

    @cached_property
    def _alike(self) -> dict[tuple[tuple[Link, float, float], ...], Path]:
        """Paths by their links, and who shares these: a fabric has few that differ."""
        return {}

    def _way(self, pair: Pair, channel: int = 0) -> list[tuple[str, str]]:
        if (pair, channel) not in self._ways:
            a, b = self.ranks[pair[0]], self.ranks[pair[1]]
            inside = self.scale_up is not None and self.hops.in_scale_up(a, b)
            way = [(_OUT, str(a)), (_INTO, str(b))] if inside else self.hops.between(a, b, self._port(a, b, channel))
            self._ways[pair, channel] = way
        return self._ways[pair, channel]

    def _port(self, a: int, b: int, channel: int) -> int | None:
        if (a, b, channel) not in self.numbers:
            return None
        nics = self.hops.fabric.nics
        return source_port(*self.numbers[a, b, channel], int(nics[a].ip), int(nics[b].ip))

    def _loads(self, traffic: Mapping[Pair, float]) -> dict[tuple[str, str], float]:
        loads: dict[tuple[str, str], float] = {}
        for pair, amount in traffic.items():
            for hop in self._way(pair):
                loads[hop] = loads.get(hop, 0.0) + amount
        return loads

    def _path(self, way: Sequence[tuple[str, str]], loads: Mapping[tuple[str, str], float]) -> Path:
        if way[0][0] == _OUT:  # one link, shared by whatever leaves the one or enters the other
            assert self.scale_up is not None
            shared = max(1.0, *(loads[hop] for hop in way))
            return Path((replace(self.scale_up, rate_bps=self.scale_up.rate_bps / shared),), scale_up=True)
        key = tuple([(self.links[hop], max(1.0, loads[hop]), self.latency_ns.get(hop[1], 0.0)) for hop in way])
        if key not in self._alike:
            links = tuple(replace(link, rate_bps=link.rate_bps / shared) for link, shared, _ in key)
            self._alike[key] = Path(links, tuple(latency for *_, latency in key[:-1]))
        return self._alike[key]


def slowest(paths: Sequence[Path]) -> Path:
    """The path with the least rate; of several the one with the longest way."""
    return max(paths, key=lambda p: (1 / min(link.rate_bps for link in p.links), p.constant_ns))


_OUT, _INTO = ">", "<"  # of a GPU's link into its scale-up domain; no node is called so
