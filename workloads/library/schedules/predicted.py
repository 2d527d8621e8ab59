"""What a library's schedules take on a fabric, where their messages are too many to follow: rings as arrays, trees.

A hop takes what the fabric takes for a slice, and what the library adds (manner.py).
"""

from __future__ import annotations

from math import ceil

import numpy as np

from workloads.collectives.manner import Manner
from workloads.collectives.pat import rounds as pat_rounds
from workloads.library.costs import STREAMED, Protocol, Value
from workloads.library.pieces import Cut
from workloads.library.rings import State, ring_ns
from workloads.library.schedules.orders import ring
from workloads.library.trees import Between, Inside, tree_ns
from workloads.times.case import Case
from workloads.times.messages import Costs, Path, line_ns, received_ns

_SLICE = 64 << 10  # whose time says what a hop takes beside its bytes


def _manner(case: Case) -> Manner:
    assert case.shape.library is not None
    return case.shape.library


def hop_of(path: Path, costs: Costs) -> tuple[float, float]:
    """What a message is late beside its bytes, and a byte's time."""
    byte = (line_ns(2 * _SLICE, path, costs) - line_ns(_SLICE, path, costs)) / _SLICE
    return costs.wake_ns + received_ns(_SLICE, path, costs) - _SLICE * byte, byte


def _protocol(case: Case) -> Protocol:
    its = _manner(case)
    order = ring(0, case.n, its.gpus, its.nics, crossing=its.crossing)
    far, near = _between(case), (0.0, 0.0)
    if its.gpus > 1:
        near = hop_of(case.ways.path([(order[0], order[1])]), case.costs)

    def column(value: float) -> Value:
        return np.full((1, 1, 1), value)

    return Protocol(
        its.protocol,
        column(its.launch),
        column(its.byte),
        column(its.slice),
        column(near[0] + its.near + case.costs.post_ns),
        column(0.0),
        column(case.costs.post_ns),
        column(far[1] * its.padded),
        column(far[0] + its.far),
        column(near[1] * its.padded),
    )


def _between(case: Case) -> tuple[float, float]:
    """As `hop_of`, of hops from server to server: late as they are on average, the slowest cable keeps all up."""
    its, n = _manner(case), case.n
    leaves = 0 if its.pxn and not its.crossing else its.gpus - 1
    hops: dict[Path, tuple[float, float]] = {}
    found = []
    for channel in range(its.nics if n > its.gpus else 0):
        order = ring(channel, n, its.gpus, its.nics, crossing=its.crossing)
        for first in range(0, n, its.gpus):
            path = case.ways.path([(order[first + leaves], order[(first + its.gpus) % n])])
            if path not in hops:
                hops[path] = hop_of(path, case.costs)
            found.append(hops[path])
    if not found:
        return 0.0, 0.0
    return sum(late for late, _ in found) / len(found), max(byte for _, byte in found)


def all_reduce_ring_ns(case: Case) -> float:
    return _ring_ns(case, "all_reduce")


def reduce_scatter_ring_ns(case: Case) -> float:
    return _ring_ns(case, "reduce_scatter")


def all_gather_ring_ns(case: Case) -> float:
    return _ring_ns(case, "all_gather")


def _ring_ns(case: Case, collective: str) -> float:
    its, n = _manner(case), case.n
    lanes = max(1, its.channels // its.nics) if n > its.gpus else 1
    cut = Cut(its.chunk, its.slices, its.least, its.slots)
    state = State(_protocol(case), its.gpus, n // its.gpus, lanes, 0, its.pxn and not its.crossing)
    return float(np.max(ring_ns(state, collective, ceil(case.size / its.channels), n, cut)))


def all_gather_pat_ns(case: Case) -> float:
    """What is busiest in each round, one behind the other, and the hops of a tree's longest way."""
    its, protocol = _manner(case), _protocol(case)
    part, buffer = case.share(case.n), its.channels * its.chunk
    passes = max(1, ceil(part / buffer))
    nbytes = ceil(part / passes)
    busy = hops = 0.0
    for todo in pat_rounds(case.n, max(1, buffer // max(nbytes, 1))):
        count = nbytes * len(todo.come)
        work = count * its.byte / its.channels + its.slice
        net = protocol.message.item() + count * protocol.net_byte.item()
        busy += max(work, net)
        hops = max(hops, min(work, net) + protocol.net.item())
    return float(its.launch + passes * busy + (case.n - 1).bit_length() * hops)


reduce_scatter_pat_ns = all_gather_pat_ns


def broadcast_ns(case: Case) -> float:
    """Piece behind piece along the ring, which comes back to the root's server where it begins within it."""
    its, protocol, n = _manner(case), _protocol(case), case.n
    share = ceil(case.size / its.channels)
    pieces = max(1, ceil(share / its.chunk))
    work, net, far, near = _of_chunk(case, protocol, ceil(share / pieces))
    lanes, servers = max(1, its.channels // its.nics), n // its.gpus
    between = servers if 1 < servers < n and its.channels > 1 else servers - 1
    way = (n - 1) * work + (n - 1 - between) * near
    way += between * (lanes * net + far + near * (its.pxn and its.gpus > 1))
    if its.protocol in STREAMED:  # only the root keeps a piece that long
        way -= (n - 2) * work
    return float(its.launch + way + (pieces - 1) * max(work, lanes * net if servers > 1 else 0.0))


reduce_ns = broadcast_ns


def send_recv_ns(case: Case) -> float:
    """Chunk behind chunk, by what keeps them longest: the channels, or the NIC."""
    its, protocol = _manner(case), _protocol(case)
    share = ceil(case.size / its.of_peer)
    chunks = max(1, ceil(share / its.chunk))
    nbytes = ceil(share / chunks)
    work, net, far, near = _of_chunk(case, protocol, nbytes)
    if case.n == its.gpus:
        return its.launch + chunks * work + near
    every = max(work, its.of_peer * net)
    return its.launch + work + its.of_peer * net + far + near * (its.gpus > 1 and its.pxn) + (chunks - 1) * every


def all_to_all_ns(case: Case) -> float:
    """As long as the busiest of channels with their proxy, NIC and NVLink, and one chunk's way."""
    its, n, protocol = _manner(case), case.n, _protocol(case)
    part = case.share(n)
    chunks = max(1, ceil(part / its.of_peer / its.chunk)) * its.of_peer
    work, net, far, near = _of_chunk(case, protocol, ceil(part / chunks))
    outside, beside = n - its.gpus, its.gpus - 1
    channels = min(its.channels, (n - 1) * its.of_peer)
    clocks = ceil((n - 1) * its.of_peer / channels) * chunks / its.of_peer * work
    clocks += channels * outside / (n - 1) * net  # the last of all channels come to the NIC together
    handed = outside * beside / its.gpus if its.pxn else 0.0
    link = (beside + handed) * part * np.asarray(protocol.near_byte).item()
    busiest = max(clocks, work + outside * chunks * net, link)
    return float(its.launch + busiest + far * (outside > 0) + near * (its.gpus > 1))


def _of_chunk(case: Case, protocol: Protocol, nbytes: int) -> tuple[float, float, float, float]:
    """What it keeps a channel, and a NIC; the ways to another server, and within one."""
    its = _manner(case)
    net = protocol.message.item() + nbytes * protocol.net_byte.item()
    near = protocol.nvlink.item() + nbytes * np.asarray(protocol.near_byte).item()
    return nbytes * its.byte + its.slice, net, protocol.net.item(), near


def all_reduce_nvls_tree_ns(case: Case) -> float:
    its, n = _manner(case), case.n
    protocol, together = _protocol(case), its.channels * its.nics
    rounds = max(1, ceil(case.size / (together * its.chunk)))
    nbytes, lanes = ceil(case.size / (together * rounds)), max(1, its.channels // 2)
    inside = Inside(1, its.byte * nbytes + its.slice, its.byte * nbytes + its.slice, 0.0)
    message = lanes * (protocol.message.item() + nbytes * protocol.net_byte.item())
    near = 2 * protocol.nvlink.item()  # to the heads, and from them
    between = Between(message, protocol.net.item())
    return float(near + tree_ns(n // its.gpus, rounds, its.launch, inside, between))


def all_reduce_tree_ns(case: Case) -> float:
    its, n = _manner(case), case.n
    protocol = _protocol(case)
    share = ceil(case.size / its.channels)
    rounds = max(1, ceil(share / its.chunk))
    nbytes, lanes = ceil(share / rounds), max(1, its.channels // its.nics // 2)
    work = 2 * its.byte * nbytes + its.slice
    near = protocol.nvlink.item() + nbytes * protocol.near_byte.item()
    message = lanes * (protocol.message.item() + nbytes * protocol.net_byte.item())
    inside = Inside(its.gpus, work, 0.0, near, its.protocol in STREAMED)
    between = Between(message, protocol.net.item())
    return tree_ns(n // its.gpus, rounds, its.launch, inside, between)
