"""Which experts the tokens of each rank take: evenly, by Zipf's law, or with a hot one.

Which expert is the popular one follows from the seed, and is the same in every layer.  Tokens go in exact proportion,
or, drawn, each takes `top_k` different experts by chance, so that some get more than their share also where all are
equally likely.
"""

from __future__ import annotations

import random
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
        loads = self.gating.loads(tokens, top_k, experts)
        if not self.draw:
            row = [0] * experts
            for place, expert in enumerate(order):
                row[expert] = loads[place]
            return (tuple(row),) * ranks
        weights = self.gating.shares(experts, top_k)
        return tuple(self._drawn(rng, tokens, top_k, order, weights) for _ in range(ranks))

    def _drawn(
        self, rng: random.Random, tokens: int, top_k: int, order: list[int], weights: list[float]
    ) -> tuple[int, ...]:
        row = [0] * len(order)
        for _ in range(tokens):
            left = dict(zip(order, weights, strict=True))
            for _ in range(top_k):
                (expert,) = rng.choices(list(left), list(left.values()) if any(left.values()) else None)
                row[expert] += 1
                del left[expert]
        return tuple(row)


def of_ranks(table: Table, ranks: int) -> Table:
    """[attention rank][expert rank]: experts lie on their ranks in a row, as many on each."""
    each = len(table[0]) // ranks
    return tuple(tuple(sum(row[k * each : (k + 1) * each]) for k in range(ranks)) for row in table)
