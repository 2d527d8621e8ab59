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
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from workloads.base import bfloat16
from workloads.base.data import REDUCTIONS
from workloads.collectives.schedule import (
    STAGING,
    Channel,
    Copy,
    Lane,
    Place,
    Program,
    Recv,
    Schedule,
    Send,
    Shape,
    Work,
    copies,
    places,
    program_of,
    released,
)
from workloads.parts.context import Context
from workloads.verbs import FabricError, QueuePair, Region, wire
from workloads.verbs.device import NO_STREAM
from workloads.verbs.wire import Record

if TYPE_CHECKING:
    from numpy.typing import NDArray

SLICE_BYTES = 4 << 20  # of host arithmetic between two signs of life
MOST_MESSAGES = 16384  # that a queue pair keeps posted
_OWN_CLOCKS = 1 << 32  # the first number of a time that a lane with a clock of its own waits for

Reducer = Callable[[int, float, Callable[[], None]], None]
"""Has a reduction of a lane (its number) that takes so many ns carried out, then calls."""

Timer = Callable[[float, Callable[[], None]], None]
"""Calls when so many ns have passed, whatever else goes on."""


class TooManyMessages(ValueError):
    """A schedule in pieces so small that a connection cannot take their receives."""


@dataclass(frozen=True)
class Resolved:
    """A rank's program, and where its messages land: its own, and on each connection those that it sends."""

    program: Program
    own: Mapping[Channel, Sequence[Place]]
    peers: Mapping[Channel, Sequence[Place]]
    copies: Mapping[Channel, Sequence[int]]
    plans: dict[int, Any] = field(default_factory=dict, compare=False)  # for C, by bytes of an element (compiled.py)


def resolve(schedule: Schedule, shape: Shape, index: int, channels: Sequence[Channel]) -> Resolved:
    """What a shape means for a rank and its connections.  Raises TooManyMessages."""
    program = program_of(schedule, shape, index)
    own, staged = places(program)
    by_peer = {peer: places(program_of(schedule, shape, peer))[0] for peer in {peer for peer, _ in channels}}
    peers = {(peer, channel): by_peer[peer].get((index, channel), []) for peer, channel in channels}
    most = max((len(messages.get(channel, ())) for channel in channels for messages in (own, peers)), default=0)
    if most > MOST_MESSAGES:
        raise TooManyMessages(f"{most} messages from rank to rank, at most {MOST_MESSAGES}: choose a larger chunk")
    return Resolved(program, own, peers, copies(program, staged))


@dataclass(frozen=True)
class Remote:
    """A peer's vector, staging and output: their keys, and the byte at which each begins."""

    keys: tuple[int, ...]
    at: tuple[int, ...] = (0, 0, 0)


@dataclass(frozen=True)
class Memory:
    """A rank's vector, staging and output."""

    vector: Region
    staging: Region
    output: Region

    @property
    def regions(self) -> tuple[Region, ...]:
        """As schedules name them."""
        return self.vector, self.staging, self.output


@dataclass(slots=True)
class Connection:
    """One direction each way of a connection, as one execution sees it."""

    pair: QueuePair
    remote: Remote
    places: Sequence[Place] = ()  # where our messages land at the peer, in order
    own: Sequence[Place] = ()  # where its messages land here
    copies: Sequence[int] = ()  # where in our staging memory a buffered lane copies ours
    sender: Running | None = None
    receiver: Running | None = None
    outbox: deque[Send] = field(default_factory=deque)  # waits for the window
    under_way: int = 0
    copied: int = 0
    sent: int = 0
    arrived: int = 0  # with all before them
    seen: int = 0  # by their lane
    peer: int = -1
    early: set[int] = field(default_factory=set)  # arrived before others (`transport.ordering: any`)
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
    waiting: list[tuple[int, Running]] = field(default_factory=list)  # lanes, until so many of our steps are done


class Execution:
    """One rank's program, carried out once after every `reset`."""

    compiled = False

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
        self._waits = 0
        self.reducer: Reducer | None = None  # None: the host reduces, and does nothing else meanwhile
        self.timer: Timer = self._timed

    def resolve(self, resolved: Resolved) -> None:
        """What it carries out from now on."""
        self.lanes = [Running(k, lane) for k, lane in enumerate(resolved.program)]
        for key, connection in self.connections.items():
            connection.peer = key[0]
            connection.own = resolved.own.get(key, ())
            connection.places, connection.copies = resolved.peers[key], resolved.copies.get(key, ())
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
            connection.sent = connection.copied = connection.arrived = connection.taken = connection.under_way = 0
            connection.seen = 0
            connection.acknowledged = not connection.places
            connection.early.clear()
        for running in self.lanes:
            running.at = running.under_way = 0
        self.running = False

    def start(self, dtype: str, op: str | None) -> None:
        """Takes every lane as far as it comes."""
        self.typed: list[NDArray[Any]] = [
            region.view(dtype) for region in self.memory.regions
        ]  # as schedules name them
        self._op = op
        self.running = True
        for running in self.lanes:
            if running.lane.clock and running.lane.clock.begin_ns > 0:
                self._busy(running, running.lane.clock.begin_ns, steps=0)
            else:
                self._advance(running)

    def take(self, record: Record) -> None:
        """Takes a completion of ours.  What comes before `start` is kept for it."""
        connection, number = self.by_number[record.qp], record.imm - self.first
        new = connection.arrived <= number < len(connection.own) and number not in connection.early
        if record.kind == wire.SENT and connection.sender and self.running:
            self._acknowledged(connection, connection.sender, record.wr_id - self.first)
        elif record.kind == wire.RECEIVED_IMM and new:
            connection.early.add(number)
            while connection.arrived in connection.early:
                connection.early.remove(connection.arrived)
                connection.arrived += 1
                self._arrived(connection)
        else:
            out_of_turn(record)

    def _arrived(self, connection: Connection) -> None:
        """The next message of it: its lane may see it, at once or later."""
        clock = connection.receiver.lane.clock if connection.receiver else None
        later = clock.later_ns.get(connection.peer, 0.0) if clock else 0.0
        if later > 0:
            self.timer(later, partial(self._seen, connection))
        else:
            self._seen(connection)

    def _seen(self, connection: Connection) -> None:
        connection.seen += 1
        if connection.receiver and self.running:
            self._advance(connection.receiver)

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
        """Takes a lane as far as it comes, and then those that waited for what it has done."""
        going = deque([running])
        while going:
            lane = going.popleft()
            self._go_on(lane)
            going.extend(released(lane))

    def _go_on(self, running: Running) -> None:
        """A lane's own clock goes on with its work before the host posts what it has done."""
        done: list[Send] = []
        self._step_by_step(running, done if running.lane.clock else None)
        for step in done:
            self._send(running, step)

    def _step_by_step(self, running: Running, done: list[Send] | None) -> None:
        lane = running.lane.steps
        while running.at < len(lane) and not running.reducing:
            step = lane[running.at]
            if isinstance(step, Send):
                if done is None:
                    self._send(running, step)
                else:
                    done.append(step)
            elif isinstance(step, Recv):
                connection = self.connections[step.peer, step.channel]
                if connection.seen == connection.taken:
                    return
                place = connection.own[connection.taken]
                connection.taken += 1
                if self._into(running, step.into, step.start, place, step.stop - step.start, reduce=step.reduce):
                    return
            elif isinstance(step, Copy):
                place = Place(step.source, step.start)
                if self._into(running, step.into, step.to, place, step.stop - step.start, reduce=step.reduce):
                    return
            elif isinstance(step, Work):
                assert running.lane.clock is not None
                self._busy(running, running.lane.clock.takes_ns(step))
                return
            elif (other := self.lanes[step.lane]).at < step.steps:
                other.waiting.append((step.steps, running))
                return
            running.at += 1

    def _busy(self, running: Running, ns: float, *, steps: int = 1) -> None:
        """The lane's own clock is, and then it goes on behind so many steps."""
        running.reducing = True

        def done() -> None:
            running.reducing = False
            running.at += steps
            self._advance(running)

        self.timer(ns, done)

    def _timed(self, ns: float, then: Callable[[], None]) -> None:
        self._waits += 1
        number = _OWN_CLOCKS + self._waits
        self.context.computed[number] = then
        self.device.compute(ns, wr_id=number, stream=NO_STREAM)

    def _send(self, running: Running, step: Send) -> None:
        """Posts a message, or has it wait until the window lets it; what a buffered lane sends is copied now."""
        connection = self.connections[step.peer, step.channel]
        if running.lane.buffered:
            at = connection.copies[connection.copied]
            connection.copied += 1
            self.typed[STAGING][at : at + step.stop - step.start] = self.typed[step.source][step.start : step.stop]
        self._post_in_turn(running, connection, step)

    def _post_in_turn(self, running: Running, connection: Connection, step: Send) -> None:
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
        region, start = step.source, step.start
        if running.lane.buffered:
            region, start = STAGING, connection.copies[number]
        connection.pair.write(
            self.memory.regions[region],
            start * self.width,
            running.lane.elements(step) * self.width,
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
            step = limited.outbox.popleft()
            self._post_in_turn(running, self.connections[step.peer, step.channel], step)

    def _into(self, running: Running, region: int, at: int, place: Place, count: int, *, reduce: bool) -> bool:
        """Puts what stands at `place` where a step wants it; returns whether the lane must wait for a stream to do it.

        What is reduced takes host time, or a stream's.
        """
        if not reduce:
            if place != (region, at):  # else it has arrived in its place
                self.typed[region][at : at + count] = self.typed[place.region][place.element : place.element + count]
            return False
        ns = 0.0 if running.lane.clock else self.context.costs.reduce_ns(count * self.width)
        if self.reducer is None or ns <= 0:
            self.device.spend(ns)
            self._combine(region, at, place, count)
            return False
        running.reducing = True

        def reduced() -> None:
            self._combine(region, at, place, count)
            running.reducing = False
            running.at += 1
            self._advance(running)

        self.reducer(running.number, ns, reduced)
        return True

    def _combine(self, region: int, at: int, place: Place, count: int) -> None:
        ours, theirs = self.typed[region][at:][:count], self.typed[place.region][place.element :][:count]
        reduced(self._op, ours, theirs, self.device.progress)

    def close(self) -> None:
        """It is through."""


def reduced(op: str | None, ours: NDArray[Any], theirs: NDArray[Any], tick: Callable[[], None]) -> None:
    """Combines others with ours, in place; `tick` is called now and then."""
    reduce = REDUCTIONS[op or ""]
    elements = SLICE_BYTES // ours.itemsize
    for done in range(0, len(ours), elements):
        local, other = ours[done : done + elements], theirs[done : done + elements]
        if reduce is np.add and local.dtype.name == "bfloat16":
            bfloat16.add(local, other)
        else:
            reduce(local, other, out=local)
        tick()


def out_of_turn(record: Record) -> None:
    raise FabricError(f"a record of kind {record.kind} with immediate {record.imm} is out of turn")
