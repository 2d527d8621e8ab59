"""Messages from rank to rank: channels, chunks and protocol as addP2pToPlan of NCCL 2.30.7 has them, and times."""

from __future__ import annotations

from math import ceil

import pytest

from workloads.library.choice import choose
from workloads.library.costs import Costs
from workloads.library.peers import CHUNK, channels_of, chunk_of
from workloads.library.servers import Servers
from workloads.library.settings import Settings
from workloads.library.times import time_ns

KIB = 1 << 10
L0, B, R, TM, TI, TURN = 5000.0, 400e9, 100e9, 300.0, 9000.0, 2000.0
TOLD = {"launch": L0, "nic.rate": B, "p2p.rate": R, "p2p.turn": TURN, "net.message": TM, "net.hop": TI}


def by_nccl(message: int, ranks: int, nodes: int, most: int, all_of_them: int) -> tuple[int, int, bool]:
    """Written from src/enqueue.cc alone: channels, bytes of a chunk of Simple, whether LL is small enough."""
    least = most
    while least * ranks > all_of_them and least > 1:
        least //= 2
    step = 131072
    smallest, largest = (step // 2, step) if nodes > 1 else (step // 8, step * 32)
    channels = min(least, -(-message // smallest))
    part = max(smallest, -(-message // channels))
    while part > largest and channels <= most // 2:
        channels *= 2
        part = -(-message // channels)
    chunk = step // 4 if message < step else step // 2 if message < 8 * step else step
    return channels, chunk, message <= channels * 16384


@pytest.mark.parametrize("servers", [Servers(2, 4, 4), Servers(10, 1), Servers(10, 8, 8), Servers(1, 8)])
def test_as_nccl_cuts_them(servers: Servers) -> None:
    plain = Settings()
    most, all_of_them = servers.channels_of_peer(plain), servers.channels_of_messages(plain)
    for message in (1, 8 * KIB, 64 * KIB, 64 * KIB + 1, 127 * KIB, 128 * KIB, 600 * KIB, 1 << 20, 9 << 20, 1 << 30):
        channels, chunk, small = by_nccl(message, servers.ranks, servers.nodes, most, all_of_them)
        choice = choose("send_recv", message, servers)
        assert (choice.channels, choice.channels) == (channels, channels_of(message, servers, plain))
        assert choice.protocol == ("ll" if small and servers.nodes == 1 else "simple")
        if servers.nodes > 1:
            assert chunk_of(message, "simple", servers, plain, 0) == chunk


@pytest.mark.parametrize("channels", [1, 2, 4])
def test_a_chunk_waits_for_a_turn_of_every_channel(channels: int) -> None:
    """Of p channels each sends a chunk of s bytes in s/r + p t; all together no faster than the NIC.

    L0 + (s/r + p t) + p w + t_i + (chunks - 1) max(s/r + p t, p w), with w = t_m + s/B.
    """
    servers, size = Servers(2, 1), 64 * CHUNK
    clock, w = CHUNK * 8e9 / R + channels * TURN, TM + CHUNK * 8e9 / B
    every = max(clock, channels * w)
    settings = Settings.of({"NCCL_NCHANNELS_PER_NET_PEER": channels})
    choice = choose("send_recv", size, servers, settings)
    found = time_ns("send_recv", size, servers, Costs.of(TOLD), choice, settings)
    assert choice.channels == channels
    chunks = ceil(64 / channels)
    assert found == pytest.approx(L0 + clock + channels * w + TI + (chunks - 1) * every, abs=1.0)


def test_small_messages_in_a_server_go_by_ll() -> None:
    servers = Servers(1, 8)
    small, same = (choose("send_recv", 4096, servers, Settings.of(env)) for env in ({}, {"NCCL_P2P_LL_THRESHOLD": 0}))
    assert (small.protocol, same.protocol) == ("ll", "simple")
    by_ll, by_simple = (float(time_ns("send_recv", 4096, servers, Costs.of(), one)) for one in (small, same))
    assert by_ll < by_simple
