"""How large the spots of an aggregator may be (imports nothing, so that plans can be made from it)."""

from __future__ import annotations

MOST_BLOCKS = 256
"""Of a window unless the step says: more would leave too few windows to overlap (docs/sparse.md)."""


def spot_blocks(workers: int, block_bytes: int, cache_bytes: int) -> int:
    """Blocks of a window: MOST_BLOCKS, or what lets two Rx spots of each worker and two Tx spots stay in the cache."""
    spot_bytes = cache_bytes // (2 * (workers + 1))
    return max(1, min(MOST_BLOCKS, (spot_bytes - 16) // (block_bytes + 4)))
