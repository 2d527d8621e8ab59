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

    def route(self, pair: Pair, channel: int = 0, lane: int = 0) -> Route:
        """What a message takes, whoever else does.  `lane`: of several queue pairs that it may go by."""

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
    `dateline`: what has to cross it on a grid has a class of its own.  `spread`: each packet takes another of the
    shortest ways, as often as any: cables that a message spreads over count as one link.  `by_switches`: it is they who
    spread them, and bridges in NICs hash.  `fixed_port`: all queue pairs have the same source port.
    """

    hops: Hops
    ranks: Sequence[int]
    links: Mapping[tuple[str, str], Link]
    latency_ns: Mapping[str, float]
    scale_up: Link | None = None
    numbers: Numbers = field(default_factory=dict)
    dateline: bool = True
    spread: bool = False
    by_switches: bool = False
    fixed_port: bool = False

    def route(self, pair: Pair, channel: int = 0, lane: int = 0) -> Route:
        keys = tuple(self._way(pair, channel, lane))
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
        best = max(loads, key=lambda key: loads[key] / self._link(key).together_bps, default=None)
        return (loads[best], self._link(best)) if best else (0.0, next(iter(self.links.values())))

    def _link(self, key: tuple[str, str]) -> Link:
        if self.scale_up and key[0] in (_OUT, _INTO):
            return self.scale_up
        return self._bundles[key] if key in self._bundles else self.links[key]

    @cached_property
    def _bundles(self) -> dict[tuple[str, str], Link]:
        """Cables that messages spread over, by the nodes at their ends."""
        return {}

    def _spread(self, a: int, b: int, flow: Sequence[int]) -> list[tuple[str, str]]:
        """The way of packets that take all shortest ways: bundles, where there are several cables side by side."""
        steps = self.hops.spread(a, b, flow, by_switches=self.by_switches)
        return [next(iter(shares)) if len(shares) == 1 else self._bundle(shares) for shares in steps]

    def _bundle(self, shares: Mapping[tuple[str, str], float]) -> tuple[str, str]:
        """As fast as the first of its cables that is full."""
        links, nodes = [self.links[hop] for hop in shares], sorted({hop[1] for hop in shares})
        key = ",".join(sorted({hop[0] for hop in shares})), ",".join(nodes)
        together = min(link.together_bps / share for link, share in zip(links, shares.values(), strict=True))
        rate = min(link.rate_bps for link in links)
        cuts = all(link.cuts for link in links)
        self._bundles[key] = Link(rate, max(link.delay_ns for link in links), together / rate, cuts)
        return key

    def _latency(self, node: str) -> float:
        """Of a switch, or of the slowest of a bundle's."""
        return max(self.latency_ns.get(name, 0.0) for name in node.split(","))

    @cached_property
    def _ways(self) -> dict[tuple[Pair, int, int], list[tuple[str, str]]]:
        return {}

    @cached_property
    def _slowest(self) -> dict[tuple[Pair, ...], Path]:
        return {}

    @cached_property
    def _alike(self) -> dict[tuple[tuple[Link, float, float], ...], Path]:
        """Paths by their links, and who shares these: a fabric has few that differ."""
        return {}

    def _way(self, pair: Pair, channel: int = 0, lane: int = 0) -> list[tuple[str, str]]:
        if (pair, channel, lane) not in self._ways:
            a, b = self.ranks[pair[0]], self.ranks[pair[1]]
            inside = self.scale_up is not None and self.hops.in_scale_up(a, b)
            if inside:
                way = [(_OUT, str(a)), (_INTO, str(b))]
            elif self.spread or self.by_switches:
                way = self._spread(a, b, self._flow(a, b, channel, lane))
            else:
                way = self.hops.between(a, b, *self._flow(a, b, channel, lane))
            self._ways[pair, channel, lane] = way
        return self._ways[pair, channel, lane]

    def _flow(self, a: int, b: int, channel: int, lane: int) -> tuple[int, int] | tuple[()]:
        """Its source port, and the queue pair that it is for, where they are known.

        What a connection has of them follow each other.
        """
        if (a, b, channel) not in self.numbers:
            return ()
        nics, (own, peer) = self.hops.fabric.nics, (number + lane for number in self.numbers[a, b, channel])
        return source_port(own, peer, int(nics[a].ip), int(nics[b].ip), fixed=self.fixed_port), peer

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
        key = tuple([(self._link(hop), max(1.0, loads[hop]), self._latency(hop[1])) for hop in way])
        if key not in self._alike:
            links = tuple(shared_by(link, shared) for link, shared, _ in key)
            self._alike[key] = Path(links, tuple(latency for *_, latency in key[:-1]))
        return self._alike[key]


def slowest(paths: Sequence[Path]) -> Path:
    """The path with the least rate; of several the one with the longest way."""
    return max(paths, key=lambda p: (1 / min(link.together_bps for link in p.links), p.constant_ns))


def shared_by(link: Link, messages: float) -> Link:
    """What one of so many has of it: fewer of the cables side by side, and less of the last one."""
    if link.spread > messages or messages <= 1:
        return replace(link, spread=link.spread / messages)
    return replace(link, rate_bps=link.together_bps / messages, spread=1.0)


_OUT, _INTO = ">", "<"  # of a GPU's link into its scale-up domain; no node is called so
