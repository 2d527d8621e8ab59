"""Rings hop by hop, all ranks at once: edges that differ, and rings of hundreds of thousands of ranks.

A ring's state is when each rank begins its next hop.  Two rules make a long ring short, and both are exact:

- **Equal turns.** If the edges repeat every p ranks around the ring, so do the states: p ranks stand for all.
- **Equal hops.** A hop is made of sums and maxima, so states that are later by the same time at all ranks give states
  that are later by that time.  Once a turn (p hops of one kind) has done nothing but that, so does every further one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import numpy as np

from workloads.times.messages import (
    ACK_BYTES,
    Costs,
    Packets,
    Path,
    acks_ns,
    line_ns,
    received_ns,
    sent_ns,
    slowest_stage,
    stages_of,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Times = NDArray[np.float64]

_SAME_NS = 1e-6

T = TypeVar("T")


def turn(edges: Sequence[T]) -> Sequence[T]:
    """The fewest edges that, repeated, are the ring."""
    n = len(edges)
    numbers = {edge: k for k, edge in enumerate(dict.fromkeys(edges))}
    found = np.array([numbers[edge] for edge in edges])
    for p in range(1, n // 2 + 1):
        if n % p == 0 and np.array_equal(found[p:], found[:-p]):
            return edges[:p]
    return edges


def hops(step: Callable[[Times], Times], state: Times, times: int) -> Times:
    """`state` after so many steps; rows are ranks in their order, or several clocks of each."""
    lag = state.shape[-1]
    before = state
    for done in range(1, times + 1):
        state = step(state)
        if done % lag == 0:
            later = state - before
            if np.ptp(later) <= _SAME_NS:
                turns, left = divmod(times - done, lag)
                state = state + turns * float(later.flat[0])
                for _ in range(left):
                    state = step(state)
                return state
            before = state
    return state


class Edge(NamedTuple):
    """From a rank to the next: what its messages see `alone`, and `shared`, when those of all others are under way."""

    alone: Path
    shared: Path


def direct_over_ns(adds: Sequence[int], chunk_bytes: int, edges: Sequence[Edge], costs: Costs) -> float:
    """A ring of NICs (direct_reduce.py) over edges that may differ: `edges[i]` leads from rank i to rank i + 1.

    A rank begins a hop when its part of the one before is sent, and when that hop's first packet has come and is added.
    What shares a cable takes its turn there with whole parts; the first packet of one seldom meets another.
    """
    its = turn(edges)
    most = PASS_PACKETS * costs.mtu
    whole = max(chunk_bytes - 1, 0) // most
    last = chunk_bytes - whole * most
    before = [0, *adds[:-1]]  # what a hop sends has been through the engine in the hop before
    state = np.zeros(len(its))
    kinds = [(most, *k) for k in zip(before, adds, strict=True)] * whole
    kinds += [(last, *k) for k in zip(before[:-1], adds[:-1], strict=True)]
    for (part, passed, added), same in groupby(kinds):
        cross = np.array([_crossing_ns(part, added, edge.alone, costs) for edge in its])
        busy = np.array([_busy_ns(part, passed, edge.shared, costs) for edge in its])

        def hop(now: Times, cross: Times = cross, busy: Times = busy) -> Times:
            return np.maximum(now + busy, np.roll(now + cross, 1))

        state = hops(hop, state, len(list(same)))
    packets = Packets.of(last, costs, reth=False, imm=False)
    begin = costs.post_ns + 2 * costs.pcie_latency_ns + min(costs.mtu, chunk_bytes) * 8e9 / costs.pcie_rate_bps
    carried = np.array(
        [e.alone.constant_ns + packets.through(stages_of(e.shared, costs, to_memory=False)[1:]) for e in its]
    )
    payload = packets.last[0]
    result = costs.engine_ns(payload * adds[-1]) + payload * 8e9 / costs.pcie_rate_bps + costs.pcie_latency_ns
    return begin + float((state + carried).max()) + result + costs.wake_ns


PASS_PACKETS = 256
"""Of a chunk that go round at a time."""


def _crossing_ns(part_bytes: int, adds: int, path: Path, costs: Costs) -> float:
    """The first packet's way to the next NIC, and through its engine."""
    payload, wire = Packets.of(part_bytes, costs, reth=False, imm=False).first
    return path.constant_ns + sum(link.time_ns(wire) for link in path.links) + costs.engine_ns(payload * adds)


def _busy_ns(part_bytes: int, before: int, path: Path, costs: Costs) -> float:
    """Sending a part: on the slowest of its way, with acknowledgements of what comes in; or in the engine."""
    packets = Packets.of(part_bytes, costs, reth=False, imm=False)
    acks = (packets.count - 1) // costs.ack_every + 1
    sending = packets.through([slowest_stage(path, costs)]) + acks * path.links[0].time_ns(ACK_BYTES)
    return max(sending, packets.count * costs.engine_ns(packets.first[0] * before))


def host_ring_over_ns(reduces: Sequence[bool], chunk_bytes: int, edges: Sequence[Edge], costs: Costs) -> float:
    """A ring of hosts with whole messages, over edges that may differ.

    Rank i's hop k + 1 waits for hop k from its left, and for its own message before on the same path.
    """
    its = turn([edge.shared for edge in edges])

    def of_each(time_ns: Callable[[Path], float]) -> Times:
        known = {path: time_ns(path) for path in set(its)}
        return np.array([known[path] for path in its])

    acks = of_each(lambda p: acks_ns(chunk_bytes, p, costs))
    messages = of_each(lambda p: received_ns(chunk_bytes, p, costs)) + acks
    acknowledged = of_each(lambda p: sent_ns(chunk_bytes, p, costs)) + acks
    busy = of_each(lambda p: line_ns(chunk_bytes, p, costs))
    reduced = costs.reduce_ns(chunk_bytes)
    state = np.zeros((2, len(its)))  # when a rank may post its next message, when its way is free for that
    for reducing, same in groupby(reduces):

        def hop(now: Times, reduced: float = reducing * reduced) -> Times:
            ready, free = now
            begin = np.maximum(ready + costs.post_ns, free)
            awake = np.maximum(ready + costs.post_ns, np.roll(begin + messages, 1)) + costs.wake_ns
            return np.array([awake + reduced, begin + busy])

        state = hops(hop, state, len(list(same)) - (reducing is reduces[-1]))
    ready, free = state
    begin = np.maximum(ready + costs.post_ns, free)
    arrived = np.roll(begin + messages, 1)
    awake = np.maximum(ready + costs.post_ns, arrived) + costs.wake_ns + reduces[-1] * reduced
    sent = begin + acknowledged
    return float(np.where(sent <= arrived, awake, np.maximum(sent, awake) + costs.wake_ns).max())
