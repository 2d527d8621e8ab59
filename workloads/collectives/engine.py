"""Executes any schedule over verbs: one connection per peer and channel, RDMA writes with immediate, no credits.

Receives are posted before the collective begins; a write goes straight to where the receiver's schedule wants it,
which the sender works out for itself.  Lanes go on as completions come in; the host does one thing at a time, so that
reductions of several lanes queue up.  Every message's immediate is its number on its connection.  Several engines share
the rank's completion queue: each gets what comes on its connections, whichever of them waits.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from struct import Struct

import numpy as np

from workloads.collectives.schedule import (
    Copy,
    Lane,
    Place,
    Program,
    Recv,
    Schedule,
    Send,
    Shape,
    places,
    program_of,
    steps,
)
from workloads.parts.context import Context
from workloads.verbs import FabricError, Peer, QueuePair, wire
from workloads.verbs.wire import Record

SLICE_BYTES = 4 << 20  # of host arithmetic between two signs of life
MOST_MESSAGES = 16384  # that a queue pair keeps posted

_KEYS = Struct("<III")  # of vector, staging and output
_REDUCE = {"sum": np.add, "avg": np.add, "min": np.minimum, "max": np.maximum, "prod": np.multiply}

Channel = tuple[int, int]  # index of the peer in the group, channel


class TooManyMessages(ValueError):
    """A schedule in pieces so small that a connection cannot take their receives."""


@dataclass
class _Connection:
    pair: QueuePair
    keys: tuple[int, ...]
    places: list[Place] = field(default_factory=list)  # where the peer wants what we send, in order
    own: list[Place] = field(default_factory=list)  # where we want what it sends
    sender: _Running | None = None
    receiver: _Running | None = None
    outbox: deque[Send] = field(default_factory=deque)  # waits for the window
    under_way: int = 0
    sent: int = 0
    arrived: int = 0
    taken: int = 0
    acknowledged: bool = True  # the last message of ours


@dataclass
class _Running:
    """A lane in progress."""

    lane: Lane
    at: int = 0
    outbox: deque[Send] = field(default_factory=deque)  # waits for the window
    under_way: int = 0


class Engine:
    """Runs the program of one rank of a group, again and again, for vectors of any size up to the largest."""

    def __init__(
        self, context: Context, ranks: Sequence[int], schedule: Schedule, largest: Shape, width: int, tag: int
    ):
        """Connects.  `largest` is the shape of the largest vector, `width` the bytes of an element."""
        self.context = context
        self.device = context.device
        self.schedule = schedule
        self.index = list(ranks).index(self.device.rank)
        self.width = width
        program = program_of(schedule, largest, self.index)
        _, staged = places(program)
        self.vector = context.region("vector", max(context.largest_bytes, largest.length(self.index) * width))
        self.staging = context.region("staging", staged * width)
        self.output = context.region("output", _output_elements(program) * width)
        keys = _KEYS.pack(self.vector.key, self.staging.key, self.output.key)
        channels = sorted({(s.peer, s.channel) for s in steps(program) if not isinstance(s, Copy)})
        pairs = self.device.connect([Peer(ranks[peer], tag + channel, keys) for peer, channel in channels])
        self._connections = {
            c: _Connection(pair, _KEYS.unpack(pair.private)) for c, pair in zip(channels, pairs, strict=True)
        }
        self._by_number = {c.pair.number: c for c in self._connections.values()}
        context.completed |= dict.fromkeys(self._by_number, self._complete)
        self._shape: Shape | None = None
        self._running = False

    def prepare(self, shape: Shape) -> None:
        """Makes ready for one run: posts the receives."""
        if shape != self._shape:
            self._resolve(shape)
            self._shape = shape
        for connection in self._connections.values():
            connection.sent = connection.arrived = connection.taken = connection.under_way = 0
            connection.acknowledged = not connection.places
            for number in range(len(connection.own)):
                connection.pair.recv(self.vector, wr_id=number)
        for running in self._lanes:
            running.at = running.under_way = 0

    def _resolve(self, shape: Shape) -> None:
        """Works out our program, and where our peers want what we send them."""
        program = program_of(self.schedule, shape, self.index)
        own, _ = places(program)
        theirs: dict[int, dict[Channel, list[Place]]] = {}
        self._lanes = [_Running(lane) for lane in program]
        for (peer, channel), connection in self._connections.items():
            if peer not in theirs:
                theirs[peer], _ = places(program_of(self.schedule, shape, peer))
            connection.own = own.get((peer, channel), [])
            connection.places = theirs[peer].get((self.index, channel), [])
            connection.sender = connection.receiver = None
            if (most := max(len(connection.own), len(connection.places))) > MOST_MESSAGES:
                raise TooManyMessages(
                    f"{most} messages from rank to rank, at most {MOST_MESSAGES}: choose a larger chunk"
                )
        for running in self._lanes:
            for step in running.lane.steps:
                if isinstance(step, Send):
                    self._connections[step.peer, step.channel].sender = running
                elif isinstance(step, Recv):
                    self._connections[step.peer, step.channel].receiver = running

    def run(self, dtype: str, op: str | None) -> None:
        """Returns when all has been received and all that was sent is acknowledged."""
        self.typed = self.vector.view(dtype)
        self.staged = self.staging.view(dtype)
        self.result = self.output.view(dtype)
        self._op = op
        self._running = True
        for running in self._lanes:
            self._advance(running)
        total = sum(len(running.lane.steps) for running in self._lanes)
        while not self._done():
            for record in self.device.wait():
                self.context.completed.get(record.qp, _out_of_turn)(record)
            self.context.tick(sum(running.at for running in self._lanes), total)
        self._running = False

    def _complete(self, record: Record) -> None:
        """Takes a completion of ours.  What comes before `run` is kept for it."""
        connection = self._by_number[record.qp]
        expected = record.imm == connection.arrived < len(connection.own)
        if record.kind == wire.SENT and connection.sender and self._running:
            self._acknowledged(connection, connection.sender, record.wr_id)
        elif record.kind == wire.RECEIVED_IMM and expected:
            connection.arrived += 1
            if connection.receiver and self._running:
                self._advance(connection.receiver)
        else:
            _out_of_turn(record)

    def _done(self) -> bool:
        return all(r.at == len(r.lane.steps) and not r.outbox for r in self._lanes) and all(
            c.acknowledged for c in self._connections.values()
        )

    def _advance(self, running: _Running) -> None:
        """Takes a lane as far as what has arrived lets it."""
        lane = running.lane.steps
        while running.at < len(lane):
            step = lane[running.at]
            if isinstance(step, Send):
                self._send(running, step)
            elif isinstance(step, Recv):
                connection = self._connections[step.peer, step.channel]
                if connection.arrived == connection.taken:
                    return
                place = connection.own[connection.taken]
                connection.taken += 1
                if step.reduce:
                    self._reduce(step, place.element)
            else:
                self.result[step.to : step.to + step.stop - step.start] = self.typed[step.start : step.stop]
            running.at += 1

    def _send(self, running: _Running, step: Send) -> None:
        """Posts a message, or has it wait until the window lets it."""
        connection = self._connections[step.peer, step.channel]
        limited = connection if running.lane.per_peer else running
        if running.lane.window is not None and limited.under_way == running.lane.window:
            limited.outbox.append(step)
            return
        limited.under_way += 1
        self._post(running, connection, step)

    def _post(self, running: _Running, connection: _Connection, step: Send) -> None:
        number, place = connection.sent, connection.places[connection.sent]
        connection.sent += 1
        last = connection.sent == len(connection.places)
        connection.pair.write(
            self.vector,
            step.start * self.width,
            (step.stop - step.start) * self.width,
            connection.keys[place.region],
            place.element * self.width,
            imm=number,
            wr_id=number,
            # completions of a connection are in order: the last says it all, if nothing waits for one before it
            signaled=last or running.lane.window is not None,
        )

    def _acknowledged(self, connection: _Connection, running: _Running, number: int) -> None:
        connection.acknowledged = number + 1 == len(connection.places)
        limited = connection if running.lane.per_peer else running
        limited.under_way -= 1
        if limited.outbox:
            self._send(running, limited.outbox.popleft())

    def _reduce(self, step: Recv, staged: int) -> None:
        """Combines what has been staged with ours, in host time."""
        self.device.spend(self.context.costs.reduce_ns((step.stop - step.start) * self.width))
        reduce = _REDUCE[self._op or ""]
        most = SLICE_BYTES // self.width
        for at in range(step.start, step.stop, most):
            part = self.typed[at : min(at + most, step.stop)]
            came = staged + at - step.start
            reduce(part, self.staged[came : came + len(part)], out=part)
            self.device.progress()


def _out_of_turn(record: Record) -> None:
    raise FabricError(f"a record of kind {record.kind} with immediate {record.imm} is out of turn")


def _output_elements(program: Program) -> int:
    """How long the output of a program is: 0 if the result is in the vector."""
    ends = [s.stop for s in steps(program) if isinstance(s, Recv) and s.into != 0]
    ends += [s.to + s.stop - s.start for s in steps(program) if isinstance(s, Copy)]
    return max(ends, default=0)
