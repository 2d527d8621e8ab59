"""Ranks that all reach each other over equal paths, as in a star: what algorithms take there, without a fabric."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import cast

from workloads.base.entry import Algorithm, named
from workloads.times.case import Case
from workloads.times.expected import expected_ns
from workloads.times.messages import Costs, Link, Path
from workloads.times.ways import Pair, Route, slowest


@dataclass(frozen=True)
class Uniform:
    """Every rank reaches every other over an equal path; only the ranks' own cables are shared."""

    way: Path

    def route(self, pair: Pair, channel: int = 0, lane: int = 0) -> Route:
        ends = {0: ("out", pair[0]), len(self.way.links) - 1: ("into", pair[1])}
        keys = tuple(ends.get(k, (*pair, k)) for k in range(len(self.way.links)))
        return Route(keys, self.way.links, self.way)

    def paths(self, pairs: Sequence[Pair]) -> list[Path]:
        out, into = Counter(a for a, _ in pairs), Counter(b for _, b in pairs)
        return [_slowed(self.way, max(out[a], into[b])) for a, b in pairs]

    def path(self, pairs: Sequence[Pair]) -> Path:
        return slowest(self.paths(pairs))

    def busiest(self, traffic: Mapping[Pair, float]) -> tuple[float, Link]:
        out: dict[int, float] = {}
        into: dict[int, float] = {}
        for (a, b), nbytes in traffic.items():
            out[a] = out.get(a, 0.0) + nbytes
            into[b] = into.get(b, 0.0) + nbytes
        return max([*out.values(), *into.values()], default=0.0), self.way.links[0]


def _slowed(path: Path, sharing: int) -> Path:
    if sharing == 1:
        return path
    links = list(path.links)
    for end in {0, len(links) - 1}:
        links[end] = replace(links[end], rate_bps=links[end].rate_bps / sharing)
    return replace(path, links=tuple(links))


def closed_form_ns(entry: Algorithm, ranks: int, size_bytes: int, path: Path, costs: Costs) -> float:
    """Time in ns that the stated parameters promise when every rank reaches every other over an equal, idle `path`.

    With a schedule: for elements of 4 bytes, as a step does it that says nothing more.
    """
    if not entry.schedule:
        return cast(float, named(entry.time)(ranks, size_bytes, path, costs))
    return expected_ns(entry, Case.of(entry, ranks, size_bytes, 4, {}, 1, costs, Uniform(path)))
