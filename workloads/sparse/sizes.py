"""How large messages and the spots of an aggregator may be (imports nothing, so that plans can be made from it)."""

from __future__ import annotations

MOST_BLOCKS = 256
"""Of a window unless the step says: more would leave too few windows to overlap (docs/sparse.md)."""


def spot_blocks(workers: int, block_bytes: int, cache_bytes: int) -> int:
    """Blocks of a window: MOST_BLOCKS, or what lets two Rx spots of each worker and two Tx spots stay in the cache."""
    spot_bytes = cache_bytes // (2 * (workers + 1))
    return max(1, min(MOST_BLOCKS, (spot_bytes - 16) // (block_bytes + 4)))


def header_bytes(numbers: int) -> int:
    """Of a message: 8 bytes (round and mask, or how many blocks there are), and the offsets or indices of 4 each."""
    return -(-(8 + 4 * numbers) // 8) * 8
