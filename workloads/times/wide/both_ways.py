"""Two rings of hosts that go round the other way each: a few ranks message by message, and what more ranks add.

A rank's two messages share its cable while both are under way, and which of them is ahead follows from everything
before: no formula says how they end up.  But rings whose messages are equally long differ in the numbers of their edges
alone: those inside a leaf, a domain, a pod, and those between.  So a few small fabrics of the same kind are followed
(replay.py), in which one number each is doubled, and every further edge takes what it took there.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from workloads.collectives.ring import bidirectional_all_reduce
from workloads.collectives.schedule import Shape
from workloads.times.case import Case
from workloads.times.expected import replayed
from workloads.times.wide.places import Grid, Places, Rails, Tiers

if TYPE_CHECKING:
    from workloads.times.messages import Costs, Link, Path
    from workloads.times.queue_pairs import Numbers
    from workloads.times.ways import Pair, Route
    from workloads.times.wide.fabric import Wide

MOST_FOLLOWED = 64
"""Ranks of a fabric that is followed as it is."""


@dataclass(frozen=True)
class Some:
    """Some ranks of a large fabric as ways.Ways: their messages are followed one by one."""

    ways: Wide
    ranks: Sequence[int]

    def route(self, pair: Pair, channel: int = 0, lane: int = 0) -> Route:
        return self.ways.route((self.ranks[pair[0]], self.ranks[pair[1]]), channel)

    def paths(self, pairs: Sequence[Pair]) -> list[Path]:
        return self.ways.paths(self._of(pairs))

    def path(self, pairs: Sequence[Pair]) -> Path:
        return self.ways.path(self._of(pairs))

    def busiest(self, traffic: Mapping[Pair, float]) -> tuple[float, Link]:
        loads: dict[Hashable, float] = {}
        links: dict[Hashable, Link] = {}
        for pair, nbytes in traffic.items():
            route = self.route(pair)
            for key, link in zip(route.keys, route.links, strict=True):
                loads[key], links[key] = loads.get(key, 0.0) + nbytes, link
        slowest = max(loads, key=lambda key: loads[key] / links[key].rate_bps)
        return loads[slowest], links[slowest]

    def _of(self, pairs: Sequence[Pair]) -> list[Pair]:
        return [(self.ranks[a], self.ranks[b]) for a, b in pairs]


@dataclass(frozen=True)
class Numbered(Some):
    """Likewise, each channel with queue pairs of its own."""

    numbers: Numbers

    def route(self, pair: Pair, channel: int = 0, lane: int = 0) -> Route:
        a, b = self.ranks[pair[0]], self.ranks[pair[1]]
        own, peer = (np.array([number], np.int64) for number in self.numbers[a, b, channel])
        return replace(self.ways, numbers=lambda source, target: (own, peer)).route((a, b), channel)


def both_ways_ns(chunk_bytes: int, ways: Callable[[Places], Wide], places: Places, costs: Costs) -> float:
    """All-reduce of two halves in chunks of so many bytes.  `ways`: those of both rings on such a fabric."""

    def followed(these: Places) -> float:
        shape = Shape(these.ranks, 2 * these.ranks * chunk_bytes)
        case = Case(shape, 1, costs, Some(ways(these), these.order))
        per_edge = replayed(case, bidirectional_all_reduce, np.inf)
        assert per_edge is not None
        return per_edge

    if places.ranks <= MOST_FOLLOWED:
        return followed(places)
    some = _smaller(places)
    edges = np.array([_edges(these) for these in some], float)
    per_edge, *_ = np.linalg.lstsq(edges, np.array([followed(these) for these in some]), rcond=None)
    return float(per_edge @ _edges(places))


_FEW: dict[type, dict[str, int]] = {
    Tiers: {"per": 4, "leaves": 4, "pods": 2},
    Rails: {"servers": 2, "gpus": 8},
    Grid: {},
}
"""As many as stand for more of them."""
_STAR = 8


def _smaller(places: Places) -> list[Places]:
    """The smallest one that stands for a fabric, and others with twice as many of one thing."""
    if isinstance(places, Grid) or (isinstance(places, Tiers) and places.leaves * places.pods == 1):
        kind = (lambda n: Grid((n,))) if isinstance(places, Grid) else Tiers
        return [kind(_STAR), kind(2 * _STAR)]
    assert isinstance(places, Tiers | Rails)
    most: dict[str, int] = {f.name: getattr(places, f.name) for f in fields(places)}
    few: dict[str, Any] = {name: min(n, most[name]) for name, n in _FEW[type(places)].items()}
    least: Any = replace(places, **few)
    return [least, *(replace(least, **{k: min(2 * n, most[k])}) for k, n in few.items() if n < most[k])]


def _edges(places: Places) -> list[float]:
    """One, and how many edges of each kind the ring has: inside, between leaves or servers, between pods."""
    match places:
        case Tiers(per, leaves, _, pods):
            return [1, pods * leaves * (per - 1), pods * (leaves - 1) if pods > 1 else leaves, (pods > 1) * pods]
        case Rails(servers, gpus):
            return [1, servers * (gpus - 1), servers, 0]
    return [1, prod(places.dims), 0, 0]
