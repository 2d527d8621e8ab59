"""How dense the sum of block-sparse inputs is to be expected (docs/sparse.md)."""

from __future__ import annotations


def union_share(density: float, workers: int, overlap: float = 0.0) -> float:
    """The share of blocks that are not zero at one worker or more: the density of the sum.

    1 - (1 - d)^N for independent positions; what overlaps counts once, and the rest is drawn from what that leaves.
    """
    shared = density * overlap
    if shared >= 1:
        return 1.0
    own = (density - shared) / (1 - shared)
    return float(shared + (1 - shared) * (1 - (1 - own) ** workers))
