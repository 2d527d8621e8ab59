"""Rings hop by hop, all ranks at once: edges that differ, and rings of hundreds of thousands of ranks.

The state of a ring is when each rank begins its next hop.  Three exact rules make a long ring short:

- **Equal edges.** If the edges repeat every p ranks around the ring, so does the state: p ranks stand for all.
- **Always on.**  If no rank takes longer to send than any edge takes to cross, no rank ever waits for its own cable.
  Then the latest rank is at the end of the longest row of that many edges.
- **Equal hops.** A hop consists of sums and maxima, so a delay of the whole state is a delay of the next one.  Once p
  hops of one kind have only delayed the state, so does every further p.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple, cast

import numpy as np

from topologies.graph.frames import ACK_BYTES
from workloads.times.messages import (
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


class Edge(NamedTuple):
    """From a rank to the next: what its messages see `alone`, and `shared`, when those of all others are under way."""

    alone: Path
    shared: Path


@dataclass(frozen=True)
class Ring:
    """Edge i, from rank i to rank i + 1, is `kinds[which[i]]`."""

    kinds: Sequence[Edge]
    which: NDArray[np.intp]

    @classmethod
    def of(cls, edges: Sequence[Edge]) -> Ring:
        """All edges, one by one."""
        numbers = {edge: k for k, edge in enumerate(dict.fromkeys(edges))}
        return cls(list(numbers), np.array([numbers[edge] for edge in edges]))

    @property
    def ranks(self) -> int:
        return len(self.which)

    def of_each(self, time_ns: Callable[[Edge], float]) -> Times:
        """Of one turn's edges: the fewest that, repeated, are the ring."""
        return np.array([time_ns(edge) for edge in self.kinds])[self._period]

    def of_all(self, time_ns: Callable[[Edge], float]) -> Times:
        """Of all edges."""
        return np.array([time_ns(edge) for edge in self.kinds])[self.which]

    @cached_property
    def _period(self) -> NDArray[np.intp]:
        which, n = self.which, len(self.which)
        for p in range(1, n // 2 + 1):
            if n % p == 0 and np.array_equal(which[p:], which[:-p]):
                return which[:p]
        return which


def hops(step: Callable[[Times], Times], state: Times, times: int) -> Times:
    """`state` after so many steps; rows are ranks in their order, or several clocks of each."""
    lag = state.shape[-1]
    before = state
    for done in range(1, times + 1):
        state = step(state)
        if done % lag == 0:
            later = state - before
            if np.ptp(later) <= _SAME_NS:
                laps, left = divmod(times - done, lag)
                state = state + laps * float(later.flat[0])
                for _ in range(left):
                    state = step(state)
                return state
            before = state
    return state


def direct_over_ns(adds: Sequence[int], chunk_bytes: int, ring: Ring, costs: Costs) -> float:
    """A ring of NICs (direct_reduce.py) over edges that may differ.

    A rank begins a hop when its part of the one before is sent, and when that hop's first packet has come and is added.
    What shares a cable takes its turn there with whole parts; the first packet of one seldom meets another.
    """
    part_most = PASS_PACKETS * costs.mtu
    whole = max(chunk_bytes - 1, 0) // part_most
    last = chunk_bytes - whole * part_most
    before = [0, *adds[:-1]]  # what a hop sends has been through the engine in the hop before
    kinds = [(part_most, *k) for k in zip(before, adds, strict=True)] * whole
    kinds += [(last, *k) for k in zip(before[:-1], adds[:-1], strict=True)]
    runs = [
        Run(
            ring.of_each(lambda e, p=part, a=added: _crossing_ns(p, a, e.alone, costs)),  # type: ignore[misc]
            ring.of_each(lambda e, p=part, b=passed: _busy_ns(p, b, e.shared, costs)),  # type: ignore[misc]
            len(list(same)),
        )
        for (part, passed, added), same in groupby(kinds)
    ]
    adding = _Adding.of(kinds, ring, costs)
    packets = Packets.of(last, costs, reth=False, imm=False)

    def carried(edge: Edge) -> float:
        return edge.alone.constant_ns + packets.through(stages_of(edge.shared, costs, to_memory=False)[1:])

    begin = costs.post_ns + 2 * costs.pcie_latency_ns + min(costs.mtu, chunk_bytes) * 8e9 / costs.pcie_rate_bps
    payload = packets.last[0]
    result = costs.engine_ns(payload * adds[-1]) + payload * 8e9 / costs.pcie_rate_bps + costs.pcie_latency_ns
    arrived = ring.of_each(carried)
    if always_on(runs):
        ends = longest_ways(runs, len(arrived)) + arrived
    elif adding is None:
        ends = hop_by_hop(runs, len(arrived)) + arrived
    else:
        ends = adding.ends(arrived)
    return begin + float(ends.max()) + result + costs.wake_ns


class Run(NamedTuple):
    """Hops of one kind: what each edge takes to cross, what each rank takes to send."""

    cross: Times
    busy: Times
    times: int


@dataclass(frozen=True)
class _Adding:
    """Hops in which engines may take longer than cables.

    Engines work ahead while what they have added waits to be sent, and what they stretch out stays so.  `kinds`: what
    each hop adds, in order: bytes, and how often they are gone over.
    """

    kinds: Sequence[tuple[int, int]]
    sent: Mapping[int, Times]  # by bytes: what each rank takes to send so many
    cross: Mapping[int, Times]  # likewise what a first packet takes to the next rank
    costs: Costs

    @classmethod
    def of(cls, kinds: Sequence[tuple[int, int, int]], ring: Ring, costs: Costs) -> _Adding | None:
        """None where every engine is as fast as what its rank sends over.  `kinds`: as Runs are made of."""
        sent, cross = {}, {}
        for part in {part for part, _, _ in kinds}:
            sent[part] = ring.of_each(lambda e, p=part: _busy_ns(p, 0, e.shared, costs))  # type: ignore[misc]
            cross[part] = ring.of_each(lambda e, p=part: _crossing_ns(p, 0, e.alone, costs))  # type: ignore[misc]
        adding = cls([(part, added) for part, _, added in kinds], sent, cross, costs)
        return adding if any(adding.engine_ns(*kind) > sent[kind[0]].min() for kind in set(adding.kinds)) else None

    def engine_ns(self, part_bytes: int, adds: int) -> float:
        """All packets of it, one behind the other."""
        return _engine_ns(Packets.of(part_bytes, self.costs, reth=False, imm=False), adds, self.costs)

    def ends(self, crossing: Times) -> Times:
        """When what the last hop brings is at each rank.  `came`: how long it takes by itself."""
        # when each rank begins to send, has sent, and when its engine is free
        state = np.zeros((3, len(crossing)))
        state[1] = self.sent[self.kinds[0][0]]
        for (part, adds), same in groupby(self.kinds):
            state = hops(partial(self._hop, part, adds), state, len(list(same)))
        begun, ended, _ = state
        return np.maximum(begun + crossing, ended + self.cross[self.kinds[-1][0]])

    def _hop(self, part: int, adds: int, now: Times) -> Times:
        begun, ended, free = now
        sent, cross, first = self.sent[part], self.cross[part], self.costs.engine_ns(min(self.costs.mtu, part) * adds)
        at = np.maximum(np.roll(begun + cross, 1), free)
        added = np.maximum(at + self.engine_ns(part, adds), np.roll(ended + cross, 1) + first)
        begin = np.maximum(ended, at + first)
        return np.array([begin, np.maximum(begin + sent, added), added])


def hop_by_hop(runs: Sequence[Run], ranks: int) -> Times:
    """When each rank begins what comes after these hops."""
    state = np.zeros(ranks)
    for cross, busy, times in runs:

        def hop(now: Times, cross: Times = cross, busy: Times = busy) -> Times:
            return np.maximum(now + busy, np.roll(now + cross, 1))

        state = hops(hop, state, times)
    return state


def always_on(runs: Sequence[Run]) -> bool:
    """Whether no rank takes longer to send than any edge to cross, and kinds of hops differ alike on all edges."""
    return all(run.cross.min() >= run.busy.max() and np.ptp(run.cross - runs[0].cross) <= _SAME_NS for run in runs)


def longest_ways(runs: Sequence[Run], ranks: int) -> Times:
    """Likewise, where it is so, as far as the latest rank goes: the edges on the way to each rank, added up."""
    if not runs:
        return np.zeros(ranks)
    cross = runs[0].cross
    laps, rest = divmod(sum(run.times for run in runs), ranks)
    sums = np.concatenate([[0.0], np.cumsum(np.concatenate([cross, cross]))])
    ends = np.arange(ranks) + ranks
    extra = sum(run.times * float(run.cross[0] - cross[0]) for run in runs)
    return cast("Times", laps * cross.sum() + sums[ends] - sums[ends - rest] + extra)


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
    return max(sending, _engine_ns(packets, before, costs))


def _engine_ns(packets: Packets, adds: int, costs: Costs) -> float:
    """All of a message's packets; the last may be short."""
    (first, _), (last, _) = packets.first, packets.last
    return (packets.count - 1) * costs.engine_ns(first * adds) + costs.engine_ns(last * adds)


def host_ring_over_ns(reduces: Sequence[bool], chunk_bytes: int, ring: Ring, costs: Costs) -> float:
    """A ring of hosts with whole messages, over edges that may differ.

    Rank i's hop k + 1 waits for hop k from its left, and for its own message before on the same path.
    """
    acks = ring.of_each(lambda e: acks_ns(chunk_bytes, e.shared, costs))
    messages = ring.of_each(lambda e: received_ns(chunk_bytes, e.shared, costs)) + acks
    acknowledged = ring.of_each(lambda e: sent_ns(chunk_bytes, e.shared, costs)) + acks
    busy = ring.of_each(lambda e: line_ns(chunk_bytes, e.shared, costs))
    reduced = costs.reduce_ns(chunk_bytes)
    if costs.wake_ns == 0:
        runs = [
            Run(costs.post_ns + messages + adds * reduced, np.maximum(busy, costs.post_ns + reduced), len(list(same)))
            for adds, same in groupby(reduces[:-1])
        ]
        if always_on(runs):
            begin = longest_ways(runs, len(messages)) + costs.post_ns
            return float(np.maximum(begin + messages + reduces[-1] * reduced, begin + acknowledged).max())
    state = np.zeros((2, len(messages)))  # when a rank may post its next message, when its way is free for that
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
