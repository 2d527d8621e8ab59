"""All ranks' lanes taken as far as they come, in any one order, without carrying anything out.

Each step knows what must have happened before it: a vector clock, how many steps of every lane.  A message from memory
to memory uses both ends from its Send until its Recv is done.  A buffered lane's does not.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from workloads.check.memory import At, Bad, Memory, Sum, Use, Value, Values, Wrong
from workloads.collectives.schedule import (
    OUTPUT,
    STAGING,
    VECTOR,
    Channel,
    Copy,
    Lane,
    Program,
    Recv,
    Send,
    Shape,
    Wait,
    released,
    steps,
)

MOST_LANES = 4096  # of which each has a clock of all
_SHOWN = 4  # lanes of a circle that wait for each other

Named = Callable[[At], str]
"""What to call a step that a message names beside the one that is wrong."""


def named(at: At) -> str:
    return f"rank {at.rank}'s lane {at.lane}, step {at.step}"


class _Message:
    __slots__ = ("at", "clock", "sources", "values")

    def __init__(self, at: At, clock: Any, values: Values, uses: list[Use]) -> None:
        self.at, self.clock, self.values, self.sources = at, clock, values, uses


class _Running:
    """A lane in progress."""

    def __init__(self, number: int, rank: int, lane: int, its: Lane, lanes: int) -> None:
        self.number, self.rank, self.lane, self.its = number, rank, lane, its
        self.at = 0
        self.waiting: list[tuple[int, Any]] = []
        self.clock = np.zeros(lanes, np.int32)

    @property
    def place(self) -> At:
        return At(self.rank, self.lane, self.at)


class Follow:
    def __init__(self, programs: Sequence[Program], shape: Shape, name: Named, unit: str) -> None:
        self.shape, self.name, self.unit = shape, name, unit
        self.memory = [{region: Memory() for region in (VECTOR, STAGING, OUTPUT)} for _ in programs]
        if (lanes := sum(map(len, programs))) > MOST_LANES:
            raise Wrong(f"{lanes:,} lanes of all ranks; at most {MOST_LANES:,}")
        self.lanes: list[list[_Running]] = []
        for rank, program in enumerate(programs):
            first = sum(map(len, self.lanes))
            self.lanes.append([_Running(first + k, rank, k, lane, lanes) for k, lane in enumerate(program)])
        self._match()
        waited = {
            self.lanes[rank][s.lane].number for rank, p in enumerate(programs) for s in steps(p) if isinstance(s, Wait)
        }
        self.clocks: dict[int, list[Any]] = {number: [] for number in waited}  # of lanes waited for, behind each step
        self.taker: dict[tuple[int, Channel], _Running] = {}
        self.sent: dict[tuple[int, Channel], deque[_Message]] = {}  # by receiver
        self.posted: dict[tuple[int, Channel], int] = {}

    def _match(self) -> None:
        """Every message is sent by one lane and received by one, as many as are sent, and as long."""
        self.sends: dict[tuple[int, int, int], list[At]] = {}
        self.receives: dict[tuple[int, int, int], list[At]] = {}
        for rank, lanes in enumerate(self.lanes):
            for lane in lanes:
                for k, step in enumerate(lane.its.steps):
                    if isinstance(step, Send):
                        self.sends.setdefault((rank, step.peer, step.channel), []).append(At(rank, lane.lane, k))
                    elif isinstance(step, Recv):
                        self.receives.setdefault((step.peer, rank, step.channel), []).append(At(rank, lane.lane, k))
        for ways, does in ((self.sends, "sends to"), (self.receives, "receives from")):
            for (a, b, channel), found in ways.items():
                if other := next((at for at in found if at.lane != found[0].lane), None):
                    whom = b if ways is self.sends else a
                    what = f"{does} rank {whom} on channel {channel}, as {self.name(found[0])} does: one lane may"
                    raise Wrong(what, other)
        for way in dict.fromkeys((*self.sends, *self.receives)):
            sent, received = self.sends.get(way, []), self.receives.get(way, [])
            a, b, channel = way
            if len(sent) > len(received):
                what = f"rank {b} receives {len(received)} messages from rank {a} on channel {channel}, not this one"
                raise Wrong(what, sent[len(received)])
            if len(received) > len(sent):
                what = f"rank {a} sends {len(sent)} messages to rank {b} on channel {channel}: this never comes"
                raise Wrong(what, received[len(sent)])
            for out, into in zip(sent, received, strict=True):
                lengths = [step.stop - step.start for step in (self._step(out), self._step(into))]
                if lengths[0] != lengths[1]:
                    raise Wrong(f"{lengths[1]} elements are wanted, and {self.name(out)} sends {lengths[0]}", into)

    def _step(self, at: At) -> Any:
        return self.lanes[at.rank][at.lane].its.steps[at.step]

    def run(self) -> None:
        ready = deque(lane for lanes in self.lanes for lane in lanes)
        self._queue = ready
        while ready:
            lane = ready.popleft()
            self._go_on(lane)
            ready.extend(released(lane))
        stuck = [lane for lanes in self.lanes for lane in lanes if lane.at < len(lane.its.steps)]
        if stuck:
            self._deadlock(stuck)

    def _go_on(self, lane: _Running) -> None:
        while lane.at < len(lane.its.steps):
            step = lane.its.steps[lane.at]
            lane.clock[lane.number] = lane.at  # what is done; the step itself is, when it is over
            if isinstance(step, Send):
                self._send(lane, step)
            elif isinstance(step, Recv):
                key = lane.rank, (step.peer, step.channel)
                if not self.sent.get(key):
                    self.taker[key] = lane
                    return
                self._receive(lane, step, self.sent[key].popleft())
            elif isinstance(step, Copy):
                self._copy(lane, step)
            elif isinstance(step, Wait):
                other = self.lanes[lane.rank][step.lane]
                if other.at < step.steps:
                    other.waiting.append((step.steps, lane))
                    return
                if step.steps:
                    np.maximum(lane.clock, self.clocks[other.number][step.steps - 1], out=lane.clock)
            lane.at += 1
            lane.clock[lane.number] = lane.at
            if lane.number in self.clocks:
                self.clocks[lane.number].append(lane.clock.copy())

    def _use(self, rank: int, region: int, span: tuple[int, int], use: Use, clock: Any) -> None:
        if other := self.memory[rank][region].use(*span, use, clock):
            this, that = ("writes" if use.writes else "reads", "writing" if other.writes else "reading")
            what = f"this {this} {self._span(*span)} of {_of(rank, region)}"
            raise Wrong(f"race: {what}, which {self.name(other.at)} may be {that} at the time", use.at)

    def _span(self, start: int, stop: int) -> str:
        return f"{self.unit} {start}" if stop == start + 1 else f"{self.unit}s {start} to {stop - 1}"

    def _now(self, lane: _Running, writes: bool) -> Use:
        return Use(lane.place, writes, lane.number, lane.at + 1)

    def _send(self, lane: _Running, step: Send) -> None:
        key = step.peer, (lane.rank, step.channel)
        number = self.posted[key] = self.posted.get(key, 0) + 1
        receive = self.receives[lane.rank, step.peer, step.channel][number - 1]
        into: Recv = self._step(receive)
        clock, span = lane.clock.copy(), (step.start, step.stop)
        open_uses = []
        if step.start < step.stop:
            read = self._now(lane, False) if lane.its.buffered else Use(lane.place, False)
            self._use(lane.rank, step.source, span, read, clock)
            if not lane.its.buffered:
                open_uses.append(read)
            if not into.reduce and not self.lanes[step.peer][receive.lane].its.buffered:
                write = Use(lane.place, True)
                self._use(step.peer, into.into, (into.start, into.stop), write, clock)
                open_uses.append(write)
        clock[lane.number] = lane.at + 1
        values = self.memory[lane.rank][step.source].read(*span)
        self.sent.setdefault(key, deque()).append(_Message(lane.place, clock, _known(values, lane.place), open_uses))
        if (taker := self.taker.pop(key, None)) is not None:
            self._queue.append(taker)

    def _receive(self, lane: _Running, step: Recv, message: _Message) -> None:
        np.maximum(lane.clock, message.clock, out=lane.clock)
        if step.start < step.stop:
            if step.reduce or lane.its.buffered:
                self._use(lane.rank, step.into, (step.start, step.stop), self._now(lane, True), lane.clock)
            memory = self.memory[lane.rank][step.into]
            if step.reduce:
                memory.add(step.start, message.values, lane.place)
            else:
                memory.write(step.start, step.stop, message.values)
        for use in message.sources:
            use.lane, use.done = lane.number, lane.at + 1

    def _copy(self, lane: _Running, step: Copy) -> None:
        if step.start == step.stop:
            return
        self._use(lane.rank, step.source, (step.start, step.stop), self._now(lane, False), lane.clock)
        values = _known(self.memory[lane.rank][step.source].read(step.start, step.stop), lane.place)
        end = step.to + step.stop - step.start
        self._own(lane, step, end)
        memory = self.memory[lane.rank][step.into]
        if step.reduce:
            memory.add(step.to, values, lane.place)
        else:
            memory.write(step.to, end, values)

    def _own(self, lane: _Running, step: Copy, end: int) -> None:
        clock = lane.clock.copy()
        clock[lane.number] = lane.at + 1  # what it reads itself is no other's
        self._use(lane.rank, step.into, (step.to, end), self._now(lane, True), clock)

    # What is wrong at the end

    def _deadlock(self, stuck: list[_Running]) -> None:
        """Raises Wrong at a lane of a circle, or at one that waits for what never comes."""
        lane, seen = stuck[0], list[_Running]()
        while lane not in seen:
            seen.append(lane)
            lane = self._waits_for(lane)
        circle = seen[seen.index(lane) :]
        chain = ["it waits for", *(f"{self.name(one.place)}, that for" for one in circle[1:_SHOWN])]
        end = f".. ({len(circle)} in a circle)" if len(circle) > _SHOWN else "it" if circle[1:] else "itself"
        raise Wrong(f"deadlock: {' '.join(chain)} {end}", circle[0].place)

    def _waits_for(self, lane: _Running) -> _Running:
        step = lane.its.steps[lane.at]
        if isinstance(step, Wait):
            return self.lanes[lane.rank][step.lane]
        assert isinstance(step, Recv)
        posted = self.posted.get((lane.rank, (step.peer, step.channel)), 0)
        sends = self.sends[step.peer, lane.rank, step.channel]
        return self.lanes[step.peer][sends[posted].lane]

    def ends_with(self, rank: int, region: int, start: int, stop: int, wanted: Sum) -> None:
        memory = self.memory[rank][region]
        for a, b, value in memory.read(start, stop) if start < stop else ():
            if value != wanted:
                last = next((u.at for u in reversed(memory.uses[memory.cells(a, b)[0]]) if u.writes), None)
                raise _missing(_of(rank, region), self._span(a, b), value, wanted, last or At(rank))

    def all_meet(self) -> None:
        """Of a barrier: nobody has left before all have come."""
        for rank, lanes in enumerate(self.lanes):
            knows = np.max([lane.clock for lane in lanes], axis=0) if lanes else np.zeros(0)
            for other, theirs in enumerate(self.lanes):
                if other != rank and not any(knows[lane.number] for lane in theirs if len(knows)):
                    raise Wrong(f"it leaves before rank {other} has come", At(rank))


def _known(values: Values, at: At) -> Values:
    """What a step reads, where nothing has been written marked as its doing."""
    return [(a, b, Bad("reads what nothing has been written to", at) if v is None else v) for a, b, v in values]


def _of(rank: int, region: int) -> str:
    return f"rank {rank}'s {'output' if region == OUTPUT else 'vector'}"


def _missing(whose: str, span: str, value: Value, wanted: Sum, at: At) -> Wrong:
    """With the step at fault, or the last one that wrote there, or the rank."""
    if isinstance(value, Bad):
        return Wrong(f"{value.why}, and {whose} ends with it in {span}", value.at)
    if value is None:
        return Wrong(f"missing data: nothing is ever written to {span} of {whose}", at)
    lacks = [k for k in range(wanted.mask.bit_length()) if wanted.mask >> k & ~value.mask >> k & 1]
    if lacks:
        of = ", ".join(map(str, lacks[:8])) + (", .." if len(lacks) > 8 else "")
        what = f"{whose} ends without the part of rank{'s' * (len(lacks) > 1)} {of} in {span}"
        return Wrong(f"missing data: {what}", at)
    if value.mask != wanted.mask:
        more = value.mask & ~wanted.mask
        return Wrong(f"{whose} ends with rank {(more & -more).bit_length() - 1}'s part in {span}, unasked for", at)
    return Wrong(f"{whose} ends in {span} with what belongs {wanted.shift - value.shift:+} from there", at)
