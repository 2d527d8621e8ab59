"""Rings in pieces against packets, one by one: a model of its own, of what docs/model.md says of hosts and wires.

All ranks of rings on a star do the same at the same time: one that sends to itself stands for all.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from itertools import count
from typing import Any, NamedTuple

import pytest

from testbed.experiment import loads
from testbed.predict import predict

MTU, ACK_EVERY, UNDER_WAY = 4096, 16, 8
CABLE, PCIE, ROUTER, REDUCE = 400e9, 512e9, 800e9, 800e9  # bit/s; of a NIC with two ports, between host and ports
DELAY = SWITCH = PCIE_LATENCY = 500.0
ROUTER_LATENCY = POST = 100.0
PIECES = {"reduce_scatter": (1, 1), "all_gather": (1, 0), "all_reduce": (2, 1)}  # times n - 1: hops, those that reduce


class Packet(NamedTuple):
    ring: int
    hop: int
    piece: int
    payload: int  # 0: an acknowledgement
    wire: int
    last: bool


class Line:
    """One packet at a time, acknowledgements before others."""

    def __init__(self, clock: Clock, rate: float, delay: float, to: Callable[[Packet], None]) -> None:
        self.clock, self.rate, self.delay, self.to = clock, rate, delay, to
        self.queues: tuple[list[Packet], list[Packet]] = ([], [])
        self.busy = False

    def put(self, packet: Packet) -> None:
        self.queues[packet.payload > 0].append(packet)
        if not self.busy:
            self.next()

    def next(self) -> None:
        queue = self.queues[0] or self.queues[1]
        self.busy = bool(queue)
        if queue:
            packet = queue.pop(0)
            taken = packet.wire * 8e9 / self.rate
            self.clock.after(taken, self.next)
            self.clock.after(taken + self.delay, self.to, packet)


class Clock:
    def __init__(self) -> None:
        self.now, self.number = 0.0, count()
        self.heap: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []

    def after(self, ns: float, do: Callable[..., None], *what: Any) -> None:
        heapq.heappush(self.heap, (self.now + ns, next(self.number), do, what))

    def run(self) -> None:
        while self.heap:
            self.now, _, do, what = heapq.heappop(self.heap)
            do(*what)


class Rings(Clock):
    def __init__(self, ranks: int, size: int, chunk: int, collective: str, rings: int = 1) -> None:
        super().__init__()
        hops, reducing = PIECES[collective]
        self.hops, self.reducing = hops * (ranks - 1), reducing * (ranks - 1)
        part = size // ranks // rings
        pieces = -(-part // chunk)
        self.sizes = [4 * (part // 4 // pieces + (i < part // 4 % pieces)) for i in range(pieces)]
        ports = 2 if rings > 1 else 1
        router, latency = (ROUTER, ROUTER_LATENCY) if rings > 1 else (1e18, 0.0)
        into = Line(self, router, 0, self.arrived)
        down = [Line(self, CABLE, DELAY, lambda p: self.after(latency, into.put, p)) for _ in range(ports)]
        up = [Line(self, CABLE, DELAY, lambda p: self.after(SWITCH, down[p.ring % ports].put, p)) for _ in range(ports)]
        self.out = Line(self, router, 0, lambda p: self.after(latency, up[p.ring % ports].put, p))
        self.host = self.writes = 0.0  # until when they are busy
        self.fetching, self.turn = False, 0
        self.to_fetch: list[list[Packet]] = [[] for _ in range(rings)]
        self.ready = [[(0, piece) for piece in range(pieces)] for _ in range(rings)]
        self.under_way, self.unacknowledged = [0] * rings, [0] * rings
        for ring in range(rings):
            self.post(ring)

    def spend(self, ns: float) -> float:
        """When the host is through with it."""
        self.host = max(self.host, self.now) + ns
        return self.host - self.now

    def post(self, ring: int, posted: bool = False) -> None:
        while self.ready[ring] and self.under_way[ring] < UNDER_WAY:
            self.under_way[ring] += 1
            self.after((0 if posted else self.spend(POST)) + PCIE_LATENCY, self.seen, ring, *self.ready[ring].pop(0))
            posted = False

    def seen(self, ring: int, hop: int, piece: int) -> None:
        starts = range(0, self.sizes[piece], MTU)
        for start in starts:
            payload, last = min(MTU, self.sizes[piece] - start), start == starts[-1]
            wire = 82 + payload + 16 * (start == 0) + 4 * last
            self.to_fetch[ring].append(Packet(ring, hop, piece, payload, wire, last))
        if not self.fetching:
            self.fetch()

    def fetch(self) -> None:
        """Queue pairs in turn, packet by packet."""
        rings = len(self.to_fetch)
        ring = next((k % rings for k in range(self.turn, self.turn + rings) if self.to_fetch[k % rings]), None)
        self.fetching = ring is not None
        if ring is not None:
            self.turn, packet = ring + 1, self.to_fetch[ring].pop(0)
            self.after(packet.payload * 8e9 / PCIE, self.fetch)
            self.after(packet.payload * 8e9 / PCIE + PCIE_LATENCY, self.out.put, packet)

    def arrived(self, packet: Packet) -> None:
        if not packet.payload:
            self.after(PCIE_LATENCY if packet.last else 0, self.acknowledged, packet.ring, packet.last)
            return
        self.unacknowledged[packet.ring] += 1
        if packet.last or self.unacknowledged[packet.ring] == ACK_EVERY:
            self.unacknowledged[packet.ring] = 0
            self.out.put(packet._replace(payload=0, wire=86))
        self.writes = max(self.writes, self.now) + packet.payload * 8e9 / PCIE
        if packet.last:
            self.after(self.writes - self.now + PCIE_LATENCY, self.received, packet)

    def acknowledged(self, ring: int, last: bool) -> None:
        self.under_way[ring] -= last
        self.post(ring)

    def received(self, packet: Packet) -> None:
        """Reduced and handed on in one go."""
        more, reduces = packet.hop + 1 < self.hops, packet.hop < self.reducing
        took = self.spend(self.sizes[packet.piece] * 8e9 / REDUCE + POST * more) if reduces else 0.0
        self.after(took, self.hand_on if more else lambda *_: None, packet, reduces)

    def hand_on(self, packet: Packet, posted: bool) -> None:
        self.ready[packet.ring].append((packet.hop + 1, packet.piece))
        self.post(packet.ring, posted)


def both_us(ranks: int, size: int, chunk: int, collective: str, algorithm: str = "ring") -> tuple[float, float]:
    several = algorithm == "multi_ring"
    packets = Rings(ranks, size, chunk, collective, rings=16 if several else 1)
    packets.run()
    step = f"{{collective: {collective}, algorithm: {algorithm}, sizes: [{size}B], chunk: {chunk}B}}"
    star = f"{{star: {{hosts: {ranks}, links: {2 if several else 1}}}}}"
    (figure,) = predict(loads(f"name: x\nfabric: {{topology: {star}}}\nworkload: [{step}]")).figures
    return figure.time_ns / 1000, packets.now / 1000


@pytest.mark.parametrize("collective", PIECES)
@pytest.mark.parametrize(("ranks", "size"), [(2, 1 << 20), (5, 5 * 40960), (8, 4 << 20)])
def test_a_ring_takes_as_long_and_the_same_pieces_are_best(ranks: int, size: int, collective: str) -> None:
    """With eight small pieces under way it is their acknowledgements that count: they wait behind data, by the way."""
    small, *others = (both_us(ranks, size, chunk, collective) for chunk in (16 << 10, 64 << 10, 256 << 10))
    for ours, theirs in others:
        assert ours == pytest.approx(theirs, rel=0.003)
    assert 0.96 * small[1] < small[0] < 1.001 * small[1]
    assert min((small, *others))[1] == min(theirs for _, theirs in (small, *others))


@pytest.mark.parametrize("collective", ["all_gather", "reduce_scatter"])
def test_sixteen_rings_take_as_long(collective: str) -> None:
    """Eight over each port here, as many as ECMP's hash has it there: PCIe is what both wait for."""
    ours, theirs = both_us(8, 16 << 20, 1 << 20, collective, "multi_ring")
    assert ours == pytest.approx(theirs, rel=0.005)
