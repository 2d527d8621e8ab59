"""Which experts tokens go to: evenly, by Zipf's law, or one of them gets a share of its own; and how many it takes.

Every rank's tokens are divided alike, so a hot expert is everybody's.  With a capacity, an expert takes that many times
its even share of a rank's tokens, and the rest is dropped (GShard, Lepikhin et al. 2020; Switch, Fedus et al. 2021).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil

from workloads.base.divide import divided


@dataclass(frozen=True, kw_only=True)
class Gating:
    """`zipf`: the exponent, expert k gets 1/(k+1)^zipf; `hot`: the share of the first expert, the others share evenly.

    Neither: all get the same.  `capacity`: factor of the even share (None: nothing is dropped).
    """

    zipf: float = 0.0
    hot: float | None = None
    capacity: float | None = None

    def loads(self, tokens: int, top_k: int, experts: int) -> tuple[int, ...]:
        """How many of a rank's tokens go to each expert, dropped ones left out."""
        limit = self.limit(tokens, top_k, experts)
        return tuple(min(n, limit) for n in divided(tokens * top_k, self.shares(experts, top_k)))

    def limit(self, tokens: int, top_k: int, experts: int) -> int:
        """How many of a rank's tokens an expert takes."""
        return tokens if self.capacity is None else min(tokens, ceil(self.capacity * tokens * top_k / experts))

    def dropped(self, tokens: int, top_k: int, experts: int) -> int:
        """How many of a rank's tokens times `top_k` find no room."""
        return tokens * top_k - sum(self.loads(tokens, top_k, experts))

    def shares(self, experts: int, top_k: int) -> list[float]:
        """Of what is routed.  A token takes an expert once, so that none has more than 1 / top_k."""
        if self.hot is not None and experts > 1:
            weights = [self.hot, *[(1 - self.hot) / (experts - 1)] * (experts - 1)]
        else:
            raw = [1 / (k + 1) ** self.zipf for k in range(experts)]
            weights = [w / sum(raw) for w in raw]
        return capped(weights, 1 / top_k)


def capped(weights: Sequence[float], cap: float) -> list[float]:
    """Weights of sum 1, none above `cap`: what one has too much goes to the others in proportion."""
    full: set[int] = set()
    while True:
        rest, left = 1 - cap * len(full), [k for k in range(len(weights)) if k not in full]
        others = sum(weights[k] for k in left)
        shares = {k: weights[k] / others * rest if others else rest / len(left) for k in left}
        above = {k for k, w in shares.items() if w > cap * (1 + 1e-12)}
        if not above:
            return [cap if k in full else shares[k] for k in range(len(weights))]
        full |= above
