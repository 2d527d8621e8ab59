"""A rank's program being carried out: lanes go on as completions come in, over connections that somebody else made.

It never waits: `start` takes the lanes as far as they come, `take` goes on with a completion, `done` says whether all
has been received and all that was sent is acknowledged.  A write goes straight to where the receiver's schedule wants
it, which the sender works out for itself.  Every message's immediate is its number on its connection, from `first` on.
What comes before `start` is kept: a peer may be ahead.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from workloads.base import bfloat16
from workloads.base.data import REDUCTIONS
from workloads.collectives.schedule import Lane, Place, Program, Recv, Schedule, Send, Shape, places, program_of
from workloads.parts.context import Context
from workloads.verbs import FabricError, QueuePair, Region, wire
from workloads.verbs.wire import Record

if TYPE_CHECKING:
    from numpy.typing import NDArray

SLICE_BYTES = 4 << 20  # of host arithmetic between two signs of life
MOST_MESSAGES = 16384  # that a queue pair keeps posted

Channel = tuple[int, int]  # index of the peer in the group, channel
Reducer = Callable[[int, float, Callable[[], None]], None]
"""Has a reduction of a lane (its number) that takes so many ns carried out, then calls."""


class TooManyMessages(ValueError):
    """A schedule in pieces so small that a connection cannot take their receives."""


@dataclass(frozen=True)
class Resolved:
    """A rank's program, and where its messages land: its own, and on each connection those that it sends."""

    program: Program
    own: Mapping[Channel, Sequence[Place]]
    peers: Mapping[Channel, Sequence[Place]]


def resolve(schedule: Schedule, shape: Shape, index: int, channels: Sequence[Channel]) -> Resolved:
    """What a shape means for a rank and its connections.  Raises TooManyMessages."""
    program = program_of(schedule, shape, index)
    own, _ = places(program)
    by_peer = {peer: places(program_of(schedule, shape, peer))[0] for peer in {peer for peer, _ in channels}}
    peers = {(peer, channel): by_peer[peer].get((index, channel), []) for peer, channel in channels}
    most = max((len(messages.get(channel, ())) for channel in channels for messages in (own, peers)), default=0)
    if most > MOST_MESSAGES:
        raise TooManyMessages(f"{most} messages from rank to rank, at most {MOST_MESSAGES}: choose a larger chunk")
    return Resolved(program, own, peers)


@dataclass(frozen=True)
class Remote:
    """A peer's vector, staging and output: their keys, and the byte at which each begins."""

    keys: tuple[int, ...]
    at: tuple[int, ...] = (0, 0, 0)


class Memory(NamedTuple):
    """A rank's vector, staging and output."""

    vector: Region
    staging: Region
    output: Region


@dataclass(slots=True)
class Connection:
    """One direction each way of a connection, as one execution sees it."""

    pair: QueuePair
    remote: Remote
    places: Sequence[Place] = ()  # where our messages land at the peer, in order
    own: Sequence[Place] = ()  # where its messages land here
    sender: Running | None = None
    receiver: Running | None = None
    outbox: deque[Send] = field(default_factory=deque)  # waits for the window
    under_way: int = 0
    sent: int = 0
    arrived: int = 0
    taken: int = 0
    acknowledged: bool = True  # the last message of ours


@dataclass(slots=True)
class Running:
    """A lane in progress."""

    number: int
    lane: Lane
    at: int = 0
    outbox: deque[Send] = field(default_factory=deque)  # waits for the window
    under_way: int = 0
    reducing: bool = False  # a stream does, and says when it is through


class Execution:
    """One rank's program, carried out once after every `reset`."""

    def __init__(
        self, context: Context, width: int, memory: Memory, connections: Mapping[Channel, Connection], first: int = 0
    ) -> None:
        self.context = context
        self.device = context.device
        self.width = width
        self.memory = memory
        self.connections = connections
        self.first = first
        self.by_number = {c.pair.number: c for c in connections.values()}
        self.lanes: list[Running] = []
        self.running = False
        self.reducer: Reducer | None = None  # None: the host reduces, and does nothing else meanwhile

    def resolve(self, resolved: Resolved) -> None:
        """What it carries out from now on."""
        self.lanes = [Running(k, lane) for k, lane in enumerate(resolved.program)]
        for key, connection in self.connections.items():
            connection.own = resolved.own.get(key, ())
            connection.places = resolved.peers[key]
            connection.sender = connection.receiver = None
        for running in self.lanes:
            for step in running.lane.steps:
                if isinstance(step, Send):
                    self.connections[step.peer, step.channel].sender = running
                elif isinstance(step, Recv):
                    self.connections[step.peer, step.channel].receiver = running

    def reset(self) -> None:
        """Back to the beginning."""
        for connection in self.connections.values():
            connection.sent = connection.arrived = connection.taken = connection.under_way = 0
            connection.acknowledged = not connection.places
        for running in self.lanes:
            running.at = running.under_way = 0
        self.running = False

    def start(self, dtype: str, op: str | None) -> None:
        """Takes every lane as far as it comes."""
        self.typed: NDArray[Any] = self.memory.vector.view(dtype)
        self.staged: NDArray[Any] = self.memory.staging.view(dtype)
        self.result: NDArray[Any] = self.memory.output.view(dtype)
        self._op = op
        self.running = True
        for running in self.lanes:
            self._advance(running)

    def take(self, record: Record) -> None:
        """Takes a completion of ours.  What comes before `start` is kept for it."""
        connection = self.by_number[record.qp]
        expected = record.imm - self.first == connection.arrived < len(connection.own)
        if record.kind == wire.SENT and connection.sender and self.running:
            self._acknowledged(connection, connection.sender, record.wr_id - self.first)
        elif record.kind == wire.RECEIVED_IMM and expected:
            connection.arrived += 1
            if connection.receiver and self.running:
                self._advance(connection.receiver)
        else:
            out_of_turn(record)

    @property
    def done(self) -> bool:
        for running in self.lanes:  # asked after every record: nearly always the first one is not through
            if running.at < len(running.lane.steps) or running.outbox:
                return False
        return all(connection.acknowledged for connection in self.connections.values())

    @property
    def steps_done(self) -> int:
        return sum(running.at for running in self.lanes)

    @property
    def steps(self) -> int:
        return sum(len(running.lane.steps) for running in self.lanes)

    def awaited(self) -> list[int]:
        """Indices of the peers that it waits for now."""
        peers = set()
        for (peer, _), c in self.connections.items():
            lane = c.receiver
            missing = lane is not None and lane.at < len(lane.lane.steps) and c.arrived < len(c.own)
            if missing or (c.sent and not c.acknowledged):
                peers.add(peer)
        return sorted(peers)

    def _advance(self, running: Running) -> None:
        """Takes a lane as far as what has arrived lets it."""
        lane = running.lane.steps
        while running.at < len(lane) and not running.reducing:
            step = lane[running.at]
            if isinstance(step, Send):
                self._send(running, step)
            elif isinstance(step, Recv):
                connection = self.connections[step.peer, step.channel]
                if connection.arrived == connection.taken:
                    return
                place = connection.own[connection.taken]
                connection.taken += 1
                if step.reduce and self._reduce_elsewhere(running, step, place.element):
                    return
            else:
                self.result[step.to : step.to + step.stop - step.start] = self.typed[step.start : step.stop]
            running.at += 1

    def _send(self, running: Running, step: Send) -> None:
        """Posts a message, or has it wait until the window lets it."""
        connection = self.connections[step.peer, step.channel]
        limited = connection if running.lane.per_peer else running
        if running.lane.window is not None and limited.under_way == running.lane.window:
            limited.outbox.append(step)
            return
        limited.under_way += 1
        self._post(running, connection, step)

    def _post(self, running: Running, connection: Connection, step: Send) -> None:
        number, place = connection.sent, connection.places[connection.sent]
        connection.sent += 1
        last = connection.sent == len(connection.places)
        connection.pair.write(
            self.memory[step.source],
            step.start * self.width,
            (step.stop - step.start) * self.width,
            connection.remote.keys[place.region],
            connection.remote.at[place.region] + place.element * self.width,
            imm=self.first + number,
            wr_id=self.first + number,
            # completions of a connection are in order: the last says it all, if nothing waits for one before it
            signaled=last or running.lane.window is not None,
        )

    def _acknowledged(self, connection: Connection, running: Running, number: int) -> None:
        connection.acknowledged = number + 1 == len(connection.places)
        limited = connection if running.lane.per_peer else running
        limited.under_way -= 1
        if limited.outbox:
            self._send(running, limited.outbox.popleft())

    def _reduce_elsewhere(self, running: Running, step: Recv, staged: int) -> bool:
        """Combines what has been staged with ours: in host time (returns False), or on a stream."""
        ns = self.context.costs.reduce_ns((step.stop - step.start) * self.width)
        if self.reducer is None or ns <= 0:
            self.device.spend(ns)
            self._combine(step, staged)
            return False
        running.reducing = True

        def reduced() -> None:
            self._combine(step, staged)
            running.reducing = False
            running.at += 1
            self._advance(running)

        self.reducer(running.number, ns, reduced)
        return True

    def _combine(self, step: Recv, staged: int) -> None:
        reduce = REDUCTIONS[self._op or ""]
        elements = SLICE_BYTES // self.width
        for at in range(step.start, step.stop, elements):
            local = self.typed[at : min(at + elements, step.stop)]
            received = self.staged[staged + at - step.start :][: len(local)]
            if reduce is np.add and local.dtype.name == "bfloat16":
                bfloat16.add(local, received)
            else:
                reduce(local, received, out=local)
            self.device.progress()


def out_of_turn(record: Record) -> None:
    raise FabricError(f"a record of kind {record.kind} with immediate {record.imm} is out of turn")
