"""Messages from rank to rank: on how many channels, by which protocol, in which chunks, and whom a chunk waits for.

addP2pToPlan (src/enqueue.cc of NCCL 2.30.7).  Between servers messages share buffers, which Simple alone has
(src/transport/net.cc), and a host's proxy passes its channels on by turns: in a pass it does one thing for each
(sendProxyProgress: hand a slot to the GPU, send what is in one, or ask whether it is sent).  So with twice as many
channels under way a chunk waits twice as long for its turns.
"""

from __future__ import annotations

from math import ceil

from workloads.library.servers import Servers
from workloads.library.settings import Settings

CHUNK = 128 << 10
"""NCCL_P2P_NET_CHUNKSIZE, src/init.cc."""
_LL_THRESHOLD = 16384
"""Bytes of a channel that go by LL at most (NCCL_P2P_LL_THRESHOLD)."""


def message_bytes(collective: str, size_bytes: int, servers: Servers) -> int:
    """Of a message, given a collective's size."""
    return size_bytes if collective == "send_recv" else ceil(size_bytes / servers.ranks)


def channels_of(message: int, servers: Servers, settings: Settings) -> int:
    """On which a message goes: as many as it has parts for."""
    most, chunk = servers.channels_of_peer(settings), _chunk(settings)
    least = most
    while least * servers.ranks > servers.channels_of_messages(settings) and least > 1:
        least //= 2
    smallest, largest = (chunk // 2, chunk) if servers.nodes > 1 else (chunk // 8, 32 * chunk)
    channels = max(1, min(least, ceil(message / smallest)))
    while max(smallest, ceil(message / channels)) > largest and channels <= most // 2:
        channels *= 2
    return channels


def protocol_of(message: int, channels: int, servers: Servers, settings: Settings) -> str:
    """LL has buffers of its own in a server alone."""
    most = _LL_THRESHOLD if settings.p2p_ll_bytes is None else settings.p2p_ll_bytes
    return "ll" if servers.nodes == 1 and message <= channels * most else "simple"


def chunk_of(message: int, protocol: str, servers: Servers, settings: Settings, ll_slot: int) -> int:
    """Bytes that are sent at once; `ll_slot`: data in a slot of LL."""
    if protocol == "ll":
        return ll_slot
    chunk = _chunk(settings)
    if servers.nodes == 1:
        return chunk
    return max(1, chunk // 4 if message < chunk else chunk // 2 if message < 8 * chunk else chunk)


def _chunk(settings: Settings) -> int:
    return settings.p2p_chunk_bytes or CHUNK


def under_way(collective: str, of_peer: int, servers: Servers, settings: Settings) -> float:
    """Channels whose chunks a rank's proxy has at once: those to other servers."""
    if servers.nodes == 1:
        return 0.0
    if collective == "send_recv":
        return float(of_peer)
    others = servers.ranks - 1
    outside = (servers.ranks - servers.gpus) / others
    return outside * min(servers.channels_of_messages(settings), others * of_peer)
