"""Unequal counts, from rank to rank or of each rank: drawn from the seed, the same on every rank and machine.

Each sender's elements are divided among the receivers by weights (1 - skew) / n + skew z: at a skew of 0 all equal, at
1 by Zipf's law, 1/1, 1/2, 1/3, .. in an order of popularity that all senders share (hot experts), times a factor
between 1/2 and 3/2 of each pair's own.  Only sums, products and quotients are taken: the same on every machine.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from workloads.base.data import noise
from workloads.base.divide import divided

_POPULARITY, _PAIRS = 2**33, 2**34  # random streams


def uneven(
    ranks: int, count: int, skew: float, seed: int, senders: int = 0, transposed: bool = False
) -> tuple[tuple[int, ...], ...]:
    """[from][to]: how many elements; each sender's add up to `count`.

    With `senders`, the first so many ranks send to the others only.  `transposed`: what is drawn for (a, b) goes from b
    to a, so that each receiver's elements add up to `count`: the way back of the same draw.
    """
    if senders and transposed:
        forth = uneven(ranks, count, skew, seed, ranks - senders)
        return tuple(tuple(forth[ranks - 1 - b][ranks - 1 - a] for b in range(ranks)) for a in range(ranks))
    receivers = list(range(senders, ranks))
    popular = np.argsort(noise(seed, _POPULARITY)[: len(receivers)], kind="stable").tolist()
    harmonic = sum(1 / (k + 1) for k in range(len(receivers)))
    rows = []
    for sender in range(ranks):
        row = [0] * ranks
        if not senders or sender < senders:
            own = (noise(seed, _PAIRS + sender)[: len(receivers)] >> np.uint64(32)).tolist()
            weights = [
                (1 - skew) / len(receivers) + skew * (0.5 + own[k] / 2**32) / ((popular[k] + 1) * harmonic)
                for k in range(len(receivers))
            ]
            for receiver, share in zip(receivers, divided(count, weights), strict=True):
                row[receiver] = share
        rows.append(tuple(row))
    return tuple(rows)


def by_weights(
    parts: Sequence[Sequence[int]], ranks: int, count: int, senders: int = 0, transposed: bool = False
) -> tuple[tuple[int, ...], ...]:
    """[from][to]: how many elements, by a table of weights; the row with the largest sum has `count` of them.

    A row for each sender with a weight for each receiver; `transposed`: for each receiver with one for each sender.
    Without `senders` all ranks are both.  Exact where the shares are whole.
    """
    largest = max(sum(row) for row in parts)
    shares = [divided(count * sum(row) // largest, row) if sum(row) else [0] * len(row) for row in parts]
    rows = [[0] * ranks for _ in range(ranks)]
    for i, row in enumerate(shares):
        for k, n in enumerate(row):
            if transposed:
                rows[k][senders + i] = n
            else:
                rows[i][senders + k] = n
    return tuple(tuple(row) for row in rows)
