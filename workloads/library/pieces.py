"""How a channel's share of the data is cut: chunks that go round, slices that a protocol sends, slots that hold them.

NCCL 2.30.7: a connection's buffer has NCCL_STEPS = 8 slots (src/include/device.h).  Rings of Simple take four for a
chunk and two for a slice (src/include/collectives.h), everything else one for both (calcCollChunking, src/enqueue.cc).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil

from workloads.library.servers import Servers
from workloads.library.settings import Settings

STEPS = 8
LEAST_OF_CHANNEL = 32 << 10
"""Bytes of traffic that are worth a channel (MinTrafficPerChannel, src/enqueue.cc)."""
_LL_BYTES = 8 * 512 * STEPS * 16  # lines of a thread, threads, slots, bytes of a line with its flags
_LL128_BYTES = 120 * 640 * STEPS * 8  # elements of a thread, threads, slots, bytes of an element
_ALIGNED = 16
_NVLS_CHUNK = 128 << 10  # NCCL_NVLS_CHUNKSIZE, src/transport/nvls.cc
_NVLS_TREE_CHUNK = 64 << 10


@dataclass(frozen=True)
class Cut:
    """Bytes of data of a chunk at most, of its slices, the least that is worth a slice, and slices in the slots."""

    chunk: int
    slices: int
    least: int
    slots: int

    def slices_of(self, chunk: int) -> list[int]:
        """Bytes of each; the first ones are full."""
        each = max(_aligned(ceil(chunk / self.slices)), self.least)
        return [min(each, chunk - at) for at in range(0, chunk, each)] or [0]


def _aligned(nbytes: int) -> int:
    return -(-nbytes // _ALIGNED) * _ALIGNED


def slot_bytes(protocol: str, settings: Settings) -> int:
    """Data in a slot."""
    if protocol == "ll":
        return (settings.ll_buffer_bytes or _LL_BYTES) // STEPS // 2
    if protocol == "ll128":
        return (settings.ll128_buffer_bytes or _LL128_BYTES) // STEPS // 16 * 15
    return settings.buffer_bytes // STEPS


def ring_cut(protocol: str, settings: Settings) -> Cut:
    slot = slot_bytes(protocol, settings)
    if protocol == "simple":
        return Cut(4 * slot, 2, 2 * slot // 32, STEPS // 2)
    return Cut(slot, 1, 1, STEPS)


def loops(total: int, ranks: int, chunk: int) -> Iterator[tuple[int, int]]:
    """Of a ring's share of the data: how many loops of which chunk, the full ones first."""
    full, rest = divmod(total, ranks * chunk)
    if full:
        yield full, chunk
    if rest or not full:
        yield 1, _aligned(ceil(rest / ranks))


def tree_cut(protocol: str, channel_bytes: int, servers: Servers, settings: Settings) -> Cut:
    """Of trees: a chunk is a slice.  LL128 takes smaller ones, so that there are several for each hop."""
    chunk = slot_bytes(protocol, settings)
    if protocol == "ll128":
        hops = 1 + (servers.nodes.bit_length() - 1) + 0.1 * servers.gpus
        while channel_bytes // chunk < hops * 64 / servers.gpus and chunk > 131072:
            chunk //= 2
        while channel_bytes // chunk < hops * 16 / servers.gpus and chunk > 32768:
            chunk //= 2
    return Cut(chunk, 1, 1, STEPS)


def pat_chunk(collective: str, size_bytes: int, channels: int, settings: Settings) -> int:
    """Of a rank's part on a channel."""
    chunk, factor = slot_bytes("simple", settings), 32 if collective == "all_gather" else 16
    while chunk * channels * factor > size_bytes and chunk > 65536:
        chunk //= 2
    return chunk


def nvls_tree_chunk(size_bytes: int, channels: int, heads: int, nodes: int) -> int:
    """Of each head's part on a channel: smaller ones of small vectors, and of four servers and more."""
    chunk = _NVLS_TREE_CHUNK if nodes >= 4 else _NVLS_CHUNK
    for most, factor in ((131072, 16), (65536, 4), (32768, 1)):
        if size_bytes < factor * channels * heads * chunk and chunk > most:
            chunk = most
    return chunk


def nvls_chunk(size_bytes: int, channels: int, heads: int) -> int:
    """Likewise within one server."""
    chunk = _NVLS_CHUNK
    for most, factor in ((65536, 64), (32768, 8), (16384, 2)):
        if size_bytes < factor * channels * heads * chunk and chunk > most:
            chunk = most
    return chunk


def channels_worth(collective: str, size_bytes: int, ranks: int, protocol: str, channels: int) -> int:
    """How many of the channels get something: a small vector takes fewer (scheduleCollTasksToPlan, src/enqueue.cc)."""
    each, count = 2, size_bytes  # traffic of a byte, and bytes of a rank
    if collective != "all_reduce":
        each, count = (
            (ranks, size_bytes // ranks) if collective in ("all_gather", "reduce_scatter") else (1, size_bytes)
        )
    traffic = max(LEAST_OF_CHANNEL, each * count)
    weight = each * (4 if protocol == "ll" else 1)
    cell = _aligned(ceil(LEAST_OF_CHANNEL / weight))
    cells = max(1, ceil(count / cell))
    of_channel = _aligned(ceil(traffic / channels))
    per_channel = max(1, min(cells, ceil(of_channel / (cell * weight))))
    return max(1, min(channels, ceil(cells / per_channel)))
