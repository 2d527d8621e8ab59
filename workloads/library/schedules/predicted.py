"""What a library's schedules take on a fabric, where their messages are too many to follow: rings as arrays, trees.

A hop takes what the fabric takes for a slice, and what the library adds (manner.py).
"""

from __future__ import annotations

from math import ceil

import numpy as np

from workloads.collectives.manner import Manner
from workloads.library.costs import Protocol, Value
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
    its, n = _manner(case), case.n
    order = ring(0, n, its.gpus, its.nics, crossing=its.crossing)
    far = near = (0.0, 0.0)
    if n > its.gpus:
        last = order[0] if its.pxn and not its.crossing else order[its.gpus - 1]
        far = hop_of(case.ways.path([(last, order[its.gpus])]), case.costs)
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
    inside, between = Inside(its.gpus, work, 0.0, near), Between(message, protocol.net.item())
    return tree_ns(n // its.gpus, rounds, its.launch, inside, between)
