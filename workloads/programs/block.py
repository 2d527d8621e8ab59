"""Blocks of a block storage: their data, which compresses as stated, and their messages.

Bytes are compressed by zlib, which every Python has; what it costs is charged at the stated rate, of whatever
compressor it is of.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from struct import Struct

from workloads.programs.message import drawn, wrong_bytes

_HEADER = Struct("<IIII16x")  # writer, its number of the block, bytes of the block, bytes that follow
HEADER_BYTES = _HEADER.size
MOST_GROWTH = 64  # of a block that does not compress


@dataclass(frozen=True)
class Header:
    """What stands before a block's payload."""

    writer: int
    number: int
    block_bytes: int
    payload_bytes: int

    def packed(self) -> bytes:
        return _HEADER.pack(self.writer, self.number, self.block_bytes, self.payload_bytes)

    @classmethod
    def of(cls, message: bytes) -> Header:
        """Of a message, which begins with it."""
        return cls(*_HEADER.unpack_from(message))


def block(seed: int, variant: int, writer: int, number: int, nbytes: int, ratio: float) -> bytes:
    """Random bytes, then zeros: so many that it compresses by about that ratio."""
    random = min(nbytes, max(round(nbytes / ratio) - 24, 1))
    return drawn((seed, variant, writer, number), -(-random // 8)).tobytes()[:random].ljust(nbytes, b"\0")


def compress(data: bytes) -> bytes:
    return zlib.compress(data, 1)


def wrong_in(compressed: bytes, want: bytes) -> int:
    """How many bytes are not as they should be: all of them where nothing can be made of what came."""
    try:
        return wrong_bytes(zlib.decompress(compressed), want)
    except zlib.error:
        return len(want)


def servers_of(number: int, servers: int, replicas: int) -> list[int]:
    """Which storage servers keep block `number` of all."""
    return [(number + k) % servers for k in range(replicas)]
