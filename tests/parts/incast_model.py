"""An independent model of an incast, frame by frame, to compare fabricd with: N senders, one switch, one receiver.

Written from the papers alone and without fabricd: a host sends its packets by rate and window over its own cable, the
switch forwards them into one queue (first in, first out) that marks and stamps when a frame leaves it, the receiver
acknowledges every packet that asks for it, and answers marks with notifications if the control wants them.  Nothing is
lost and nobody pauses: buffers are infinite.

A control is a subclass of Control (reference_controls.py); all times are in ns, rates in bit/s, sizes in bytes.
"""

from __future__ import annotations

import heapq
import itertools
import math
import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

HEADERS = 14 + 20 + 8 + 12 + 4  # Ethernet, IPv4, UDP, BTH, ICRC
GAP = 4 + 20  # FCS, preamble, gap between frames
ACK_BYTES = HEADERS + 4
NEVER = math.inf


@dataclass(frozen=True)
class Net:
    """The idle fabric: one switch, all cables alike.  `ecn` is (kmin, kmax, pmax)."""

    rate_bps: float = 100e9
    delay_ns: float = 1000.0
    latency_ns: float = 500.0
    mtu: int = 1000
    pcie_bps: float = 512e9
    pcie_ns: float = 500.0
    fetched: int = 131_072
    """So much of what a host may send waits in its NIC, fetched over PCIe."""
    ack_every: int = 1
    ecn: tuple[float, float, float] = (400e3, 1600e3, 0.2)
    seed: int = 1

    def wire_ns(self, frame: int) -> float:
        """A frame without FCS on a cable."""
        return (max(frame + 4, 64) + 20) * 8e9 / self.rate_bps

    @property
    def fetch_ns(self) -> float:
        return self.mtu * 8e9 / self.pcie_bps + self.pcie_ns

    @property
    def base_rtt_ns(self) -> float:
        """From the fetch of a packet to its acknowledgement."""
        there_and_back = self.wire_ns(self.mtu + HEADERS + 20) + self.wire_ns(ACK_BYTES) + 2 * self.delay_ns
        return self.fetch_ns + 2 * there_and_back + 2 * self.latency_ns


@dataclass(frozen=True)
class Stamp:
    """What the switch says of its output when a frame leaves: all that has gone, and what still waits."""

    time_ns: float
    sent_bytes: float
    queue_bytes: float


@dataclass(frozen=True)
class Ack:
    """`acked`: packets from the first on that have come; `packets` of them are new; `next`: what is sent next."""

    packets: int
    acked: int
    next: int
    rtt_ns: float
    seen: int
    marked: int
    stamp: Stamp


class Control:
    """As fast as the cable.  `rate_bps` paces; `window_bytes` bounds the payload under way (None: nothing does)."""

    cnp_gap_ns: float | None = None
    """The receiver answers marks with a notification, one in so many ns."""
    cnp_gap_at_most = False
    """In whole packets it is rounded down, not up."""
    telemetry = (0, 0)
    """Bytes that it puts behind each packet, and behind each acknowledgement."""

    clock_ns = 0.0
    """How exactly its clock tells what is a round trip ago."""

    def __init__(self, net: Net) -> None:
        self.net = net
        self.rate_bps = self.line_bps = net.rate_bps
        self.window_bytes: float | None = None
        self.round_end = 0

    def may_send(self, under_way: int) -> bool:
        """Whether one more packet may go while so many bytes are under way."""
        return self.window_bytes is None or not under_way or under_way + self.net.mtu <= self.window_bytes

    def next_timer_ns(self) -> float:
        return NEVER

    def advance(self, now: float) -> None:
        """Timers that have run out by now act."""

    def sent(self, now: float, wire_bytes: float) -> None:
        """A packet starts on the cable."""

    def acked(self, now: float, ack: Ack) -> None:
        pass

    def notified(self, now: float) -> None:
        """A notification (CNP) has come."""

    def round_over(self, ack: Ack) -> bool:
        """A round trip ends with the first packet that was sent after it began (`ack_seq > lastUpdateSeq`: HPCC)."""
        if ack.acked <= self.round_end:
            return False
        self.round_end = ack.next
        return True


@dataclass
class Packet:
    sender: Sender
    number: int
    frame: int
    asks: bool
    left_ns: float = 0.0
    marked: bool = False
    stamp: Stamp = Stamp(0, 0, 0)


@dataclass(eq=False)
class Sender:
    control: Control
    packets: int
    start_ns: float
    next: int = 0  # to be fetched
    acked: int = 0
    waiting: deque[Packet] = field(default_factory=deque)  # fetched
    cable_free: float = 0.0
    left: int = 0  # on the cable
    may_go: float = 0.0  # by its rate
    wake: float = NEVER
    end_ns: float = NEVER
    # the receiving side
    came: int = 0
    seen: int = 0
    marks: int = 0
    told_ns: float = -NEVER
    came_ns: float = 0.0


class Incast:
    """`rates` and `queue` are kept for tests that look at more than completion times."""

    def __init__(self, net: Net, size_bytes: int, controls: list[Control], starts: list[float] | None = None) -> None:
        self.net = net
        packets = -(-size_bytes // net.mtu)
        self.senders = [Sender(c, packets, s) for c, s in zip(controls, starts or [0.0] * len(controls), strict=True)]
        self.now = 0.0
        self.events: list[tuple[float, int, Callable[[], None]]] = []
        self.order = itertools.count()
        self.random = random.Random(net.seed)
        self.queue: deque[Packet] = deque()
        self.queue_bytes = 0
        self.queue_max = 0
        self.depth: list[tuple[float, int]] = []
        self.sent_bytes = 0.0
        self.busy = False
        self.answer_free = 0.0

    def at(self, time: float, do: Callable[[], None]) -> None:
        heapq.heappush(self.events, (time, next(self.order), do))

    def run(self) -> list[float]:
        """Each sender's time from its start to its last acknowledgement."""
        for s in self.senders:
            self.at(s.start_ns, lambda s=s: self.fetch(s))
        while self.events:
            self.now, _, do = heapq.heappop(self.events)
            do()
        return [s.end_ns - s.start_ns for s in self.senders]

    # the sender's NIC

    def fetch(self, s: Sender) -> None:
        """What the window lets go is fetched, as far as the NIC has room."""
        c, net = s.control, self.net
        frame = net.mtu + HEADERS + c.telemetry[0]
        while s.next < s.packets and len(s.waiting) * frame < net.fetched and c.may_send((s.next - s.acked) * net.mtu):
            last = s.next == s.packets - 1 or not c.may_send((s.next + 1 - s.acked) * net.mtu)
            asks = last or (s.next + 1) % net.ack_every == 0
            p = Packet(s, s.next, frame, asks)
            s.next += 1
            s.waiting.append(p)
            p.left_ns = self.now + net.fetch_ns  # not before that
        self.pump(s)

    def pump(self, s: Sender) -> None:
        """The next packet goes when it is there, the cable is free and the rate as it is now allows it."""
        if not s.waiting:
            return
        c = s.control
        self.act(s, lambda: c.advance(self.now))
        paced = s.may_go if c.rate_bps < c.line_bps else 0.0
        ready = max(s.waiting[0].left_ns, s.cable_free, paced)
        if ready > self.now + 1e-6:
            when = min(ready, max(c.next_timer_ns(), self.now + 1))
            if when < s.wake or s.wake <= self.now:
                s.wake = when
                self.at(when, lambda: self.woken(s, when))
            return
        p = s.waiting.popleft()
        p.left_ns = self.now
        p.asks |= p.number == c.round_end
        s.left = p.number + 1
        s.cable_free = self.now + self.net.wire_ns(p.frame)
        s.may_go = self.now + (p.frame + GAP) * 8e9 / c.rate_bps
        self.act(s, lambda: c.sent(self.now, p.frame + GAP))
        self.at(s.cable_free + self.net.delay_ns + self.net.latency_ns, lambda: self.queued(p))
        self.fetch(s)

    def act(self, s: Sender, do: Callable[[], None]) -> None:
        """The control does something: what is left of the gap before the next packet follows its rate."""
        before = s.control.rate_bps
        do()
        if s.may_go > self.now:
            s.may_go = self.now + (s.may_go - self.now) * before / s.control.rate_bps

    def woken(self, s: Sender, when: float) -> None:
        if when == s.wake:
            s.wake = NEVER
            self.pump(s)

    # the switch

    def queued(self, p: Packet) -> None:
        self.queue.append(p)
        self.queue_bytes += p.frame
        self.queue_max = max(self.queue_max, self.queue_bytes)
        if not self.busy:
            self.output()

    def output(self) -> None:
        self.busy = bool(self.queue)
        if not self.busy:
            return
        p = self.queue.popleft()
        self.queue_bytes -= p.frame
        self.depth.append((self.now, self.queue_bytes))
        kmin, kmax, pmax = self.net.ecn
        if self.queue_bytes > kmax:
            p.marked = True
        elif self.queue_bytes > kmin:
            p.marked = self.random.random() < pmax * (self.queue_bytes - kmin) / (kmax - kmin)
        p.stamp = Stamp(self.now, self.sent_bytes, self.queue_bytes)
        self.sent_bytes += p.frame + GAP
        gone = self.now + self.net.wire_ns(p.frame)
        self.at(gone, self.output)
        self.at(gone + self.net.delay_ns, lambda: self.received(p))

    # the receiver

    def received(self, p: Packet) -> None:
        s = p.sender
        s.came += 1
        s.seen += 1
        s.marks += p.marked
        gap = s.control.cnp_gap_ns
        spacing, s.came_ns = self.now - s.came_ns, self.now
        within = spacing if s.control.cnp_gap_at_most else 0.0
        if p.marked and gap is not None and self.now + within - s.told_ns >= gap:
            s.told_ns = self.now
            self.answer(HEADERS + 16, lambda: self.notify(s))
        if p.asks:
            came, seen, marked = s.came, s.seen, s.marks
            s.seen = s.marks = 0
            self.answer(ACK_BYTES + s.control.telemetry[1], lambda: self.acknowledged(p, came, seen, marked))

    def answer(self, frame: int, do: Callable[[], None]) -> None:
        self.answer_free = max(self.answer_free, self.now) + self.net.wire_ns(frame)
        back = self.net.delay_ns + self.net.latency_ns + self.net.wire_ns(frame) + self.net.delay_ns
        self.at(self.answer_free + back, do)

    def notify(self, s: Sender) -> None:
        self.act(s, lambda: s.control.advance(self.now))
        self.act(s, lambda: s.control.notified(self.now))
        s.wake = NEVER
        self.pump(s)

    def acknowledged(self, p: Packet, came: int, seen: int, marked: int) -> None:
        s = p.sender
        packets, s.acked = came - s.acked, came
        ack = Ack(packets, came, s.left, self.now - p.left_ns, seen, marked, p.stamp)
        self.act(s, lambda: s.control.advance(self.now))
        self.act(s, lambda: s.control.acked(self.now, ack))
        if came == s.packets:
            s.end_ns = self.now
        s.wake = NEVER
        self.fetch(s)


def mean_ns(net: Net, senders: int, size_bytes: int, control: Callable[[Net], Control]) -> float:
    """Mean completion time of an incast under one control."""
    times = Incast(net, size_bytes, [control(net) for _ in range(senders)]).run()
    assert all(math.isfinite(t) for t in times)
    return sum(times) / len(times)
