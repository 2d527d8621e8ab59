"""Which experts the tokens of each rank take: evenly, by Zipf's law, or with a hot one.

Which expert is the popular one follows from the seed, and is the same in every layer.  The tokens of all ranks together
go in exact proportion, or, drawn, each takes `top_k` different experts by chance, so that some get more than their
share also where all are equally likely.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from workloads.steps.plan.experts import Gating

Table = tuple[tuple[int, ...], ...]
"""[attention rank][expert]: tokens."""


@dataclass(frozen=True, kw_only=True)
class Routing:
    """`gating`: shares of the experts, the most popular one first; `draw`: each token by itself."""

    gating: Gating = Gating()
    draw: bool = False
    seed: int = 1

    def table(self, ranks: int, tokens: int, top_k: int, experts: int) -> Table:
        """Of `tokens` tokens on each of so many ranks."""
        return self.table_of([tokens] * ranks, top_k, experts)

    def table_of(self, tokens: Sequence[int], top_k: int, experts: int, number: int = 0) -> Table:
        """Of each rank's tokens; those of another `number` draw anew."""
        rng = random.Random(self.seed)
        order = list(range(experts))
        rng.shuffle(order)
        if not self.draw:
            return _dealt(self.gating.loads(sum(tokens), top_k, experts), order, tokens)
        rng = random.Random(f"{self.seed}/{number}") if number else rng
        often = [top_k * share for share in self.gating.shares(experts, top_k)]
        weights = [(expert, p) for expert, p in zip(order, often, strict=True) if p]
        return tuple(_drawn(rng, n, top_k, experts, weights) for n in tokens)


def _dealt(loads: Sequence[int], order: Sequence[int], tokens: Sequence[int]) -> Table:
    """The loads of all ranks' tokens, from each rank by its share of them.

    All tokens stand in a row, those of the ranks mixed evenly, and experts take the next ones, `top_k` times around.
    No expert takes more than there are, so that none gets a token twice.
    """
    places = sorted(((i + 0.5) / n, rank) for rank, n in enumerate(tokens) for i in range(n))
    owners = [rank for _, rank in places]
    rows = [[0] * len(order) for _ in tokens]
    at = 0
    for expert, load in zip(order, loads, strict=True):
        for _ in range(load):
            rows[owners[at]][expert] += 1
            at = (at + 1) % len(owners)
    return tuple(map(tuple, rows))


def _drawn(
    rng: random.Random, tokens: int, top_k: int, experts: int, weights: list[tuple[int, float]]
) -> tuple[int, ...]:
    """A rank's tokens, of which each takes an expert with the stated probability.

    Drawing one expert after the other would flatten the shares: a popular one is often gone already.  So a token lays
    the experts side by side, as long as they are probable and in an order of its own, and takes those that lie at u,
    u + 1, .. (systematic sampling): none is longer than 1, so that none is taken twice.
    """
    row = [0] * experts
    for _ in range(tokens):
        rng.shuffle(weights)
        at, end, u = -1, 0.0, rng.random()
        for k in range(top_k):
            last = len(weights) - top_k + k  # sums are rounded: leave an expert for each that is still to be taken
            at += 1
            end += weights[at][1]
            while end <= u + k and at < last:
                at += 1
                end += weights[at][1]
            row[weights[at][0]] += 1
    return tuple(row)


def of_ranks(table: Table, ranks: int) -> Table:
    """[attention rank][expert rank]: experts lie on their ranks in a row, as many on each."""
    each = len(table[0]) // ranks
    return tuple(tuple(sum(row[k * each : (k + 1) * each]) for k in range(ranks)) for row in table)
