"""MurmurHash3's 32 bits over whole words (Appleby, 2011: MurmurHash3.cpp), as Open vSwitch's `hash.h` names its own.

Open vSwitch gives a basis as seed; at the end it mixes in that basis once more where MurmurHash3 has the length.
"""

from __future__ import annotations

from collections.abc import Sequence

_WORD = 0xFFFFFFFF


def murmur3(words: Sequence[int], seed: int, length: int) -> int:
    h = seed
    for word in words:
        k = word * 0xCC9E2D51 & _WORD
        k = (k << 15 | k >> 17) & _WORD
        h ^= k * 0x1B873593 & _WORD
        h = (h << 13 | h >> 19) & _WORD
        h = (h * 5 + 0xE6546B64) & _WORD
    h ^= length
    h = (h ^ h >> 16) * 0x85EBCA6B & _WORD
    h = (h ^ h >> 13) * 0xC2B2AE35 & _WORD
    return h ^ h >> 16


def swapped(value: int, size: int) -> int:
    """As a little-endian machine reads what lies in network byte order."""
    return int.from_bytes(value.to_bytes(size, "big"), "little")
