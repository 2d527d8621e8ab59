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
        rng = random.Random(self.seed)
        order = list(range(experts))
        rng.shuffle(order)
        if not self.draw:
            return _dealt(self.gating.loads(ranks * tokens, top_k, experts), order, ranks)
        often = [top_k * share for share in self.gating.shares(experts, top_k)]
        takes = [(expert, p) for expert, p in zip(order, often, strict=True) if p]
        return tuple(_drawn(rng, tokens, top_k, experts, takes) for _ in range(ranks))


def _dealt(loads: Sequence[int], order: Sequence[int], ranks: int) -> Table:
    """The loads of all ranks' tokens, an equal part from each; what cannot be divided comes from one after the other.

    So each rank has as many tokens in the end, and an expert gets none twice.
    """
    rows = [[0] * len(order) for _ in range(ranks)]
    turn = 0
    for expert, load in zip(order, loads, strict=True):
        for row in rows:
            row[expert] = load // ranks
        for _ in range(load % ranks):
            rows[turn][expert] += 1
            turn = (turn + 1) % ranks
    return tuple(map(tuple, rows))


def _drawn(
    rng: random.Random, tokens: int, top_k: int, experts: int, takes: list[tuple[int, float]]
) -> tuple[int, ...]:
    """A rank's tokens, of which each takes an expert with the stated probability.

    Drawing one expert after the other would flatten the shares: a popular one is often gone already.  So a token lays
    the experts side by side, as long as they are probable and in an order of its own, and takes those that lie at u,
    u + 1, .. (systematic sampling): none is longer than 1, so that none is taken twice.
    """
    row = [0] * experts
    for _ in range(tokens):
        rng.shuffle(takes)
        at, end, u = -1, 0.0, rng.random()
        for k in range(top_k):
            last = len(takes) - top_k + k  # sums are rounded: leave an expert for each that is still to be taken
            at += 1
            end += takes[at][1]
            while end <= u + k and at < last:
                at += 1
                end += takes[at][1]
            row[takes[at][0]] += 1
    return tuple(row)


def of_ranks(table: Table, ranks: int) -> Table:
    """[attention rank][expert rank]: experts lie on their ranks in a row, as many on each."""
    each = len(table[0]) // ranks
    return tuple(tuple(sum(row[k * each : (k + 1) * each]) for k in range(ranks)) for row in table)
