"""The hardware of docs/closed-form.md packet by packet, as a check of the formulas that needs no fabric.

NICs in a ring, each behind a port that carries its data and, first, the acknowledgements of what it receives; between a
NIC and the next lie `switches` store-and-forward hops.  Nothing is computed here but one event after the other.
"""

from __future__ import annotations

import heapq
from collections import defaultdict, deque
from collections.abc import Callable, Sequence

from workloads.closed_form import ACK_BYTES, FRAME_BYTES, IMM_BYTES, RETH_BYTES, Costs

Place = tuple[object, ...]


class PacketModel:
    """`switches[i]` of them lie between NIC i and NIC i + 1; all links and switches are equal."""

    def __init__(
        self, switches: Sequence[int], *, rate_bps: float, delay_ns: float, latency_ns: float, costs: Costs
    ) -> None:
        self.n = len(switches)
        self.switches = switches
        self.ns_per_byte = 8e9 / rate_bps
        self.delay_ns = delay_ns
        self.latency_ns = latency_ns
        self.costs = costs
        self.now = 0.0
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._count = 0
        self._queues: dict[Place, tuple[deque[Callable[[], None]], deque[Callable[[], None]]]] = defaultdict(
            lambda: (deque(), deque())
        )
        self._busy: set[Place] = set()
        self._fetch_free = [0.0] * self.n
        self._store_free = [0.0] * self.n

    def at(self, time: float, event: Callable[[], None]) -> None:
        self._count += 1
        heapq.heappush(self._events, (time, self._count, event))

    def run(self) -> None:
        while self._events:
            self.now, _, event = heapq.heappop(self._events)
            event()

    def message(
        self,
        i: int,
        size: int,
        received: Callable[[], None],
        sent: Callable[[], None] = lambda: None,
        *,
        imm: bool = True,
    ) -> None:
        """NIC i's host has just posted a message of `size` bytes to NIC i + 1."""
        c = self.costs
        count = c.packets(size)
        fetch = max(self.now + c.pcie_latency_ns, self._fetch_free[i])
        for k in range(count):
            last = k == count - 1
            payload = size - k * c.mtu if last else c.mtu
            wire = payload + FRAME_BYTES + RETH_BYTES * (k == 0) + IMM_BYTES * (last and imm)
            fetch += payload * 8e9 / c.pcie_rate_bps
            ack = last or (k + 1) % c.ack_every == 0

            def arrive(payload: int = payload, last: bool = last, ack: bool = ack) -> None:
                j = (i + 1) % self.n
                if ack:
                    back = (lambda: self.at(self.now + c.pcie_latency_ns, sent)) if last else (lambda: None)
                    self._travel(self._route(i)[::-1], ACK_BYTES, 0, back, ("up", j))
                self._store_free[j] = max(self.now, self._store_free[j]) + payload * 8e9 / c.pcie_rate_bps
                if last:
                    self.at(self._store_free[j] + c.pcie_latency_ns, received)

            self.at(
                fetch + c.pcie_latency_ns,
                lambda wire=wire, arrive=arrive: self._travel(self._route(i), wire, 1, arrive, ("up", i)),  # type: ignore[misc]
            )
        self._fetch_free[i] = fetch

    def _route(self, i: int) -> list[Place]:
        """What lies between NIC i and NIC i + 1, from i's side."""
        return [("hop", i, k) for k in range(self.switches[i])]

    def _travel(self, hops: list[Place], wire: int, priority: int, done: Callable[[], None], port: Place) -> None:
        """Queues a frame on `port`, then on that of each switch; `done` when its last bit is in at the end."""

        def next_hop() -> None:
            if not hops:
                done()
                return
            # A switch's port towards a NIC is shared by all that goes to that NIC.
            _, i, k = hops[0]
            forward = priority == 1
            to = ((i + 1) % self.n if forward else i) if len(hops) == 1 else None  # type: ignore[operator]
            out: Place = ("down", to) if to is not None else ("mid", i, k, forward)
            self.at(self.now + self.latency_ns, lambda: self._travel(hops[1:], wire, priority, done, out))

        self._queues[port][priority].append(lambda: self._serialise(port, wire, next_hop))
        self._start(port)

    def _start(self, port: Place) -> None:
        if port not in self._busy:
            for queue in self._queues[port]:
                if queue:
                    self._busy.add(port)
                    queue.popleft()()
                    return

    def _serialise(self, port: Place, wire: int, arrived: Callable[[], None]) -> None:
        def end() -> None:
            self._busy.discard(port)
            self.at(self.now + self.delay_ns, arrived)
            self._start(port)

        self.at(self.now + wire * self.ns_per_byte, end)


def ring_ns(model: PacketModel, reduces: Sequence[bool], chunk_bytes: int) -> float:
    """Runs the ring algorithm on the model; the time from everybody's call to the last one's return."""
    costs, n = model.costs, model.n
    hop = [0] * n
    arrived = [0] * n
    sent_at: list[float | None] = [None] * n
    waiting = [False] * n
    ends: list[float] = []

    def post(i: int) -> None:
        last = hop[i] == len(reduces) - 1
        posted = model.now + costs.post_ns
        model.at(posted, lambda: model.message(i, chunk_bytes, lambda: arrive((i + 1) % n), lambda: sent(i, last)))
        model.at(posted, lambda: wait(i))

    def arrive(i: int) -> None:
        arrived[i] += 1
        if waiting[i] and arrived[i] > hop[i]:
            waiting[i] = False
            model.at(model.now, lambda: wake(i))

    def wait(i: int) -> None:
        if arrived[i] > hop[i]:
            wake(i)
        else:
            waiting[i] = True

    def wake(i: int) -> None:
        both = sent_at[i] is not None
        k = hop[i]
        hop[i] += 1
        ready = model.now + costs.wake_ns + reduces[k] * costs.reduce_ns(chunk_bytes)
        if hop[i] < len(reduces):
            model.at(ready, lambda: post(i))
        elif both:
            ends.append(ready)
        else:
            model.at(ready, lambda: finish(i))

    def finish(i: int) -> None:
        at = sent_at[i]
        if at is None:
            waiting[i] = True
        else:
            ends.append(model.now + costs.wake_ns)

    def sent(i: int, last: bool) -> None:
        if last:
            sent_at[i] = model.now
            if hop[i] == len(reduces) and waiting[i]:
                ends.append(model.now + costs.wake_ns)

    for i in range(n):
        model.at(0.0, lambda i=i: post(i))  # type: ignore[misc]
    model.run()
    assert len(ends) == n
    return max(ends)
