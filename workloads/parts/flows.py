"""Plain flows: RDMA writes between ranks, any number at once, each on a connection of its own.

A flow goes out in messages, DEPTH of them posted ahead; the last one carries an immediate, which tells the receiver
that all is there.  The sender draws every message from one small buffer of random bytes, shifted by where the message
belongs, so that bytes in the wrong place differ.  The receiver keeps as much of a flow as its share of KEPT_BYTES holds
(later messages go over earlier ones) and compares every byte of that.  Many receivers keep less each: all their memory
is one machine's.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from struct import Struct
from typing import Any, NamedTuple

from workloads.base import data
from workloads.base.vocabulary import FLOW_MESSAGE_BYTES as MESSAGE_BYTES
from workloads.parts.context import Context
from workloads.verbs import FabricError, Peer, QueuePair, wire

DEPTH = 64  # messages in flight per flow: 64 MiB, 1.3 ms at 400 Gb/s
PROGRESS_STEPS = 8  # at least, of what a rank has to wait for
KEPT_BYTES = 64 << 20  # what a receiver keeps of all flows of a step together, if a message each fits
ALL_KEPT_BYTES = 8 * KEPT_BYTES  # likewise of all receivers of a step

COURSE_POINTS = 64  # of a flow's course, at most

_TARGET = Struct("<IQ")  # region key, offset


class Flow(NamedTuple):
    """Flow `number` of a step: `size_bytes` from rank `source` to rank `target`, `start_ns` after the step's begin."""

    number: int
    source: int
    target: int
    size_bytes: int
    start_ns: float
    dscp: int | None = None  # of its packets; None: the NIC's, and its class
    traffic_class: int = 0
    transport: int | None = None  # its number in the plan; None: that of its step


class Outcome(NamedTuple):
    """What one end saw.  The sender: start and its last completion.  The receiver: start, arrival and wrong bytes."""

    flow: Flow
    role: str  # sender, receiver
    start_ns: float
    end_ns: float
    wrong: int
    course: Sequence[tuple[int, float]] = ()  # of a sender that is watched: bytes, and how long after its start


def parse(flows: Sequence[dict[str, Any]]) -> list[Flow]:
    """The flows of a plan's step."""
    return [
        Flow(
            *(k, f["from"], f["to"], f["size_bytes"], f.get("start_ns", 0.0), f.get("dscp")),
            traffic_class=f.get("traffic_class", 0),
            transport=f.get("transport"),
        )
        for k, f in enumerate(flows)
    ]


def _sent(flow: Flow) -> dict[str, Any]:
    """How it is sent."""
    return {"dscp": flow.dscp, "traffic_class": flow.traffic_class, "transport": flow.transport}


def participants(flows: Sequence[Flow]) -> list[int]:
    """The ranks at either end of a flow, in order."""
    return sorted({rank for f in flows for rank in (f.source, f.target)})


def windows(flows: Sequence[Flow], rank: int) -> dict[int, int]:
    """Flow number -> bytes that receiver `rank` keeps of it: its size, or as many whole messages as its share holds."""
    incoming = [f for f in flows if f.target == rank]
    if not incoming:
        return {}
    kept = min(KEPT_BYTES, ALL_KEPT_BYTES // len({f.target for f in flows}))
    share = max(kept // len(incoming) // MESSAGE_BYTES, 1) * MESSAGE_BYTES
    return {f.number: min(f.size_bytes, share) for f in incoming}


def messages_of(flow: Flow) -> int:
    return max(1, -(-flow.size_bytes // MESSAGE_BYTES))


@dataclass
class _Sending:
    """A flow as its sender sees it."""

    flow: Flow
    pair: QueuePair
    rkey: int
    base: int  # of the window in the receiver's region
    window: int
    posted: int = 0  # messages
    done: int = 0
    end_ps: int = 0
    came_ps: list[int] = field(default_factory=list)  # of each message, if it is watched

    @property
    def messages(self) -> int:
        return messages_of(self.flow)

    @property
    def may_post(self) -> bool:
        return self.posted < self.messages and self.posted < self.done + DEPTH


class Flows:
    """One rank's part of a step of flows."""

    watched = False

    def __init__(
        self, context: Context, flows: Sequence[Flow], tag: int, kept_bytes: int, *, watched: bool = False
    ) -> None:
        """Connects to the other ends; flow k has the tag `tag + k`.  `kept_bytes`: the most that a step keeps.

        If they are `watched`, senders keep how far they were when.
        """
        self.context, self.watched = context, watched
        self.device = device = context.device
        self.size = len(participants(flows))
        self.incoming = {f.number: f for f in flows if f.target == device.rank}
        outgoing = {f.number: f for f in flows if f.source == device.rank}
        self.kept = windows(flows, device.rank)
        self.base: dict[int, int] = {}
        at = 0
        for number, nbytes in self.kept.items():
            self.base[number] = at
            at += nbytes
        self.kept_bytes = at
        self.window = context.region("window", kept_bytes) if self.incoming else None
        peers = [Peer(f.target, tag + k, **_sent(f)) for k, f in outgoing.items()]
        for k, f in self.incoming.items():
            assert self.window is not None
            private = _TARGET.pack(self.window.key, self.base[k])
            peers.append(Peer(f.source, tag + k, private, **_sent(f)))
        pairs = device.connect(peers)
        self.sending: dict[int, _Sending] = {}
        for (k, f), pair in zip(outgoing.items(), pairs, strict=False):
            rkey, base = _TARGET.unpack(pair.private)
            self.sending[k] = _Sending(f, pair, rkey, base, windows(flows, f.target)[k])
        self.receiving = dict(zip(self.incoming, pairs[len(outgoing) :], strict=True))
        if outgoing:
            self.source = context.region("source", data.PERIOD + MESSAGE_BYTES)
            data.fill(self.source.view("uint8"), data.noise_bytes(context.seed, device.rank))

    def prepare(self) -> None:
        """Clears what flows write to and posts a receive for each one's end.  Called before each `run`."""
        for sending in self.sending.values():
            sending.posted = sending.done = 0
            sending.came_ps.clear()
        if self.window is not None:
            self.window.view("uint8", 0, self.kept_bytes)[:] = 0
            for number, pair in self.receiving.items():
                messages = messages_of(self.incoming[number])
                for k in range(max(messages - pair.lanes, 0), messages):
                    pair.lane(k).recv(self.window)

    def run(self, begin_ns: float) -> None:
        """Starts each of our flows in its time and returns when all that leave or come here are done."""
        self.begin_ns = begin_ns
        self.arrived: dict[int, float] = {}
        flow_of = {pair.number: k for k, pair in self.receiving.items()}
        lacking = {k: min(self.receiving[k].lanes, messages_of(f)) for k, f in self.incoming.items()}
        waiting = sorted(self.sending.values(), key=lambda s: (s.flow.start_ns, s.flow.number), reverse=True)
        active: list[_Sending] = []
        of = sum(s.messages for s in waiting) + sum(lacking.values())
        done = 0
        while waiting or active or len(self.arrived) < len(self.incoming):
            # in picoseconds, as the clock counts: a fraction of one would be waited for, for ever
            while waiting and round((begin_ns + waiting[-1].flow.start_ns) * 1000) <= self.device.answered_ps:
                active.append(waiting.pop())
            self._post(active)
            until = begin_ns + waiting[-1].flow.start_ns if waiting else None
            for record in self.device.wait(self._most_at_once(active, of), until):
                done += 1
                if record.kind == wire.SENT and record.wr_id in self.sending:
                    sending = self.sending[record.wr_id]
                    sending.done += 1
                    sending.end_ps = record.time_ps
                    if self.watched:
                        sending.came_ps.append(record.time_ps)
                elif record.kind == wire.RECEIVED_IMM and record.qp in flow_of:
                    number = flow_of[record.qp]
                    lacking[number] -= 1
                    if not lacking[number]:
                        self.arrived[number] = record.time_ps / 1000
                else:
                    raise FabricError(f"a record of kind {record.kind} on queue pair {record.qp} among flows")
            active = [s for s in active if s.done < s.messages]
            self.context.tick(done, of)

    def finish(self) -> Iterator[Outcome]:
        """What became of every flow that left or came here."""
        for s in self.sending.values():
            start_ns = self.begin_ns + s.flow.start_ns
            yield Outcome(s.flow, "sender", start_ns, s.end_ps / 1000, 0, _course(s, start_ns))
        for k, f in self.incoming.items():
            yield Outcome(f, "receiver", self.begin_ns + f.start_ns, self.arrived[k], self._wrong(f))

    def _most_at_once(self, active: list[_Sending], of: int) -> int:
        """How many records to wait for: many, where each one would be noticed only to wait for the next.

        That is when all is posted, and waking costs no time of the host. No more than one flow still lacks, so that one
        that fails, which ends all of its messages, is heard of at once; and not all, so that progress is seen.
        """
        if self.device.wake_ns or not active:
            return 1
        lacking = min(1 if s.posted < s.messages else s.messages - s.done for s in active)
        return min(lacking, -(-of // PROGRESS_STEPS))

    def _post(self, active: list[_Sending]) -> None:
        """Posts what may be posted, a message of each flow in turn."""
        while ready := [s for s in active if s.may_post]:
            for s in ready:
                at = s.posted * MESSAGE_BYTES
                s.posted += 1
                place = at % max(s.window, 1)
                last = s.posted + s.pair.lanes > s.messages  # of those that go by its lane
                s.pair.lane(s.posted - 1).write(
                    self.source,
                    (place + _shift(s.flow)) % data.PERIOD,
                    min(MESSAGE_BYTES, s.flow.size_bytes - at),
                    s.rkey,
                    s.base + place,
                    wr_id=s.flow.number,
                    imm=s.flow.number if last else None,
                )

    def _wrong(self, flow: Flow) -> int:
        assert self.window is not None
        kept = self.window.view("uint8", self.base[flow.number], self.kept[flow.number])
        sent = data.noise_bytes(self.context.seed, flow.source)
        return data.count_wrong(kept, sent, _shift(flow), self.device.progress)


def _course(sending: _Sending, start_ns: float) -> list[tuple[int, float]]:
    """How far it was when, as some points of the way."""
    came, size = sending.came_ps, sending.flow.size_bytes
    each = -(-len(came) // COURSE_POINTS) or 1
    return [(min((k + 1) * MESSAGE_BYTES, size), came[k] / 1000 - start_ns) for k in range(each - 1, len(came), each)]


def _shift(flow: Flow) -> int:
    """Where in its sender's bytes a flow begins: elsewhere for each, so that swapped flows are seen."""
    return flow.number * 1009 % data.PERIOD
