"""Synthetic traffic: size distributions, arrivals and patterns, drawn from a seed.

A distribution is a table of (bytes, share of flows up to that size); between two entries sizes are evenly spread.
`web_search` is the one of the DCTCP paper (Alizadeh et al., SIGCOMM 2010, figure 4, as tabulated with the HPCC
simulator), `hadoop` Facebook's Hadoop cluster (Roy et al., SIGCOMM 2015, likewise).
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

Table = tuple[tuple[float, float], ...]

WEB_SEARCH: Table = (
    (1, 0.0), (10_000, 0.15), (20_000, 0.20), (30_000, 0.30), (50_000, 0.40), (80_000, 0.53), (200_000, 0.60),
    (1_000_000, 0.70), (2_000_000, 0.80), (5_000_000, 0.90), (10_000_000, 0.97), (30_000_000, 1.0),
)  # fmt: skip
HADOOP: Table = (
    (1, 0.0), (180, 0.10), (216, 0.20), (560, 0.30), (900, 0.40), (1_100, 0.50), (1_870, 0.60), (3_160, 0.70),
    (10_000, 0.80), (400_000, 0.90), (3_160_000, 0.95), (100_000_000, 0.98), (1_000_000_000, 1.0),
)  # fmt: skip


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

    def draw(rng: random.Random) -> int:
        u = rng.random()
        for (low, a), (high, b) in zip(table, table[1:], strict=False):
            if u <= b:
                return max(1, round(low + (high - low) * (u - a) / (b - a))) if b > a else max(1, round(high))
        return round(table[-1][0])

    return Sizes(name, mean, draw)


def _cut(table: Table, most: int) -> Table:
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
    """`fixed` at size_bytes, `uniform` from 1 to twice that, `web_search` or `hadoop` (up to most_bytes)."""
    if name == "fixed":
        return fixed(size_bytes)
    if name == "uniform":
        return uniform(1, max(2 * size_bytes - 1, 1))
    return table_sizes(name, {"web_search": WEB_SEARCH, "hadoop": HADOOP}[name], most_bytes)


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
