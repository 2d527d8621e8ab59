"""Synthetic traffic: size distributions, arrivals and patterns, drawn from a seed.

A distribution is a table of (bytes, percentage of flows up to that size); between two entries sizes are evenly spread.
The published ones are in files of `mixes`, one a name, in the form in which they come with the HPCC simulator
(alibaba-edu/High-Precision-Congestion-Control, traffic_gen); where they are from, SOURCES says.
"""

from __future__ import annotations

import math
import random
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

Table = Sequence[tuple[float, float]]  # bytes, share of flows up to that size
MOST_ENTRIES = 10_000

SOURCES = {
    "web_search": "the web-search cluster of the DCTCP paper (Alizadeh et al., SIGCOMM 2010, figure 4)",
    "hadoop": "Facebook's Hadoop cluster (Roy et al., SIGCOMM 2015), `FbHdp` of the HPCC paper",
    "ali_storage": "Alibaba's distributed storage, 2019",
    "google_rpc": "Google's RPCs, before 2008",
}
"""The published distributions."""


class BadTable(ValueError):
    """A table that is no distribution: which of its entries, what is wrong with it, what is allowed."""

    def __init__(self, entry: int, what: str, hint: str) -> None:
        super().__init__(what)
        self.entry, self.what, self.hint = entry, what, hint


def checked(percents: Sequence[Sequence[float]]) -> Table:
    """Of (bytes, percentage).  Raises BadTable."""
    if not percents or percents[0][1] != 0:
        raise BadTable(0, "the first entry is not 0 %", "the size that no flow is smaller than, and 0")
    last = len(percents) - 1
    for k, entry in enumerate(percents):
        if not all(0 <= number < math.inf for number in entry):  # NaN is not, either
            raise BadTable(k, "a size or percentage that is none", "numbers that are not negative")
    if percents[last][1] != 100:
        raise BadTable(last, f"the last entry is {percents[last][1]:g} %", "the largest size, and 100")
    for k in range(1, len(percents)):
        if percents[k][0] < percents[k - 1][0] or percents[k][1] < percents[k - 1][1]:
            raise BadTable(k, "it is less than the entry before", "sizes and percentages that do not fall")
    if percents[last][0] < 1:
        raise BadTable(last, "no flow has a byte", "sizes in bytes")
    return tuple((float(nbytes), percent / 100) for nbytes, percent in percents)


@cache
def published(name: str) -> Table:
    """One of SOURCES."""
    lines = (Path(__file__).parent / "mixes" / f"{name}.txt").read_text().splitlines()
    return checked([[float(cell) for cell in line.split()] for line in lines])


@dataclass(frozen=True)
class Arrival:
    """One flow: payload in bytes, start in ns."""

    source: int
    target: int
    size_bytes: int
    start_ns: float


@dataclass(frozen=True)
class Sizes:
    """A size distribution with its mean in bytes."""

    name: str
    mean_bytes: float
    draw: Callable[[random.Random], int]


def table_sizes(name: str, table: Table, most_bytes: int | None = None) -> Sizes:
    """A tabulated distribution; with `most_bytes`, larger flows are cut to that."""
    if most_bytes is not None:
        table = _cut(table, most_bytes)
    mean = sum((b - a) * (p + q) / 2 for (p, a), (q, b) in zip(table, table[1:], strict=False))

    shares = [share for _, share in table]

    def draw(rng: random.Random) -> int:
        u = rng.random()
        k = max(bisect_left(shares, u), 1)
        (low, a), (high, b) = table[k - 1], table[k]
        return max(1, round(low + (high - low) * (u - a) / (b - a))) if b > a else max(1, round(high))

    return Sizes(name, mean, draw)


def _cut(table: Table, most: int) -> Table:
    if table[0][0] >= most:
        return (most, 0.0), (most, 1.0)
    kept: list[tuple[float, float]] = []
    for (low, a), (high, b) in zip(table, table[1:], strict=False):
        kept.append((low, a))
        if high >= most:
            return (*kept, (most, a + (b - a) * (most - low) / (high - low)), (most, 1.0))
    return table


def fixed(size_bytes: int) -> Sizes:
    return Sizes("fixed", size_bytes, lambda rng: size_bytes)


def uniform(least_bytes: int, most_bytes: int) -> Sizes:
    return Sizes("uniform", (least_bytes + most_bytes) / 2, lambda rng: rng.randint(least_bytes, most_bytes))


def sizes_named(name: str, size_bytes: int, most_bytes: int | None = None) -> Sizes:
    """`fixed` at size_bytes, `uniform` from 1 to twice that, or one of SOURCES (up to most_bytes)."""
    if name == "fixed":
        return fixed(size_bytes)
    if name == "uniform":
        return uniform(1, max(2 * size_bytes - 1, 1))
    return table_sizes(name, published(name), most_bytes)


def poisson(
    sizes: Sizes, *, ranks: Sequence[int], pattern: str, load: float, line_rate_bps: float, flows: int, seed: int,
    to: int | None = None,
) -> list[Arrival]:  # fmt: skip
    """`flows` flows whose arrivals are a Poisson process.

    `load` is the share of a line rate that each sender offers on average (pattern random and permutation), or that all
    senders together offer to the one receiver `to` (incast).
    """
    rng = random.Random(f"railbed {seed}")
    senders = [r for r in ranks if r != to] if pattern == "incast" else list(ranks)
    together = 1 if pattern == "incast" else len(senders)
    per_second = load * line_rate_bps * together / (8 * sizes.mean_bytes)
    partner = _derangement(senders, rng) if pattern == "permutation" else {}
    now, found = 0.0, []
    for _ in range(flows):
        now += -math.log(1 - rng.random()) / per_second * 1e9
        source = rng.choice(senders)
        if pattern == "incast":
            assert to is not None
            target = to
        elif pattern == "permutation":
            target = partner[source]
        else:
            target = source
            while target == source:
                target = rng.choice(senders)
        found.append(Arrival(source, target, sizes.draw(rng), round(now, 3)))
    return found


def burst(sizes: Sizes, *, ranks: Sequence[int], to: int, each: int = 1, seed: int = 1) -> list[Arrival]:
    """An incast: every other rank sends `each` flows to one, all at one time."""
    rng = random.Random(f"railbed {seed}")
    return [Arrival(r, to, sizes.draw(rng), 0.0) for r in ranks if r != to for _ in range(each)]


def _derangement(items: list[int], rng: random.Random) -> dict[int, int]:
    """Everybody's partner, never oneself: a cycle through a random order."""
    order = items[:]
    rng.shuffle(order)
    return {a: order[(i + 1) % len(order)] for i, a in enumerate(order)}
