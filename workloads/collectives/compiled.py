"""Schedules as plain data, carried out in C where the library is there (hardware/turns): the same, command by command.

`Compiled` stands in the place of an `Execution` (execution.py), which says what carrying out a schedule is.  It has no
lanes' clocks, windows or orders of its own: `plan_of` writes a rank's program down with its times worked out, and C
goes through it.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from workloads.base import native
from workloads.collectives.execution import Connection, Memory, Resolved, reduced
from workloads.collectives.schedule import Channel, Copy, Lane, Recv, Send, Wait, Work
from workloads.parts import turns
from workloads.parts.context import Context, HostCosts
from workloads.parts.receives import Receives
from workloads.verbs.wire import Record

if TYPE_CHECKING:
    from numpy.typing import NDArray

_SEND, _RECV, _COPY, _WORK, _WAIT = range(5)
_NO_TIME = -1


def _row(*fields: Any) -> np.dtype[Any]:
    """A row of these fields: those that are named alone are of 32 bits."""
    return np.dtype([(field, "u4") if isinstance(field, str) else field for field in fields], align=True)


# As hardware/turns/plan.h has them
_STEP = _row(
    *("kind", "other", "region", "source", ("at", "u8"), ("start", "u8"), ("nbytes", "u8"), ("message", "u8")),
    *(("ps", "i8"), "reduce", "zero"),
)
_PLACE = _row(("at", "u8"), "region", "zero")
_LANE_PLAN = _row("first", "count", ("window", "i8"), ("begin_ps", "i8"), "per_peer", "buffered", "clocked", "zero")
_LINE_PLAN = _row(
    *("own", "own_count", "there", "there_count", "copies", ("sender", "i4"), ("receiver", "i4"), "zero"),
    ("later_ps", "i8"),
)
_LANE = _row(
    *("at", "under_way", "reducing", "outbox", "outbox_last", "stream", ("pending", _PLACE), ("waiting", "u8")),
    *("waiting_count", "waiting_room", ("ahead", "u8"), ("computing", "u8"), "combined", "stopped"),
)
_LINE = _row(
    *("qp", ("keys", "u4", turns.REGIONS), ("at", "u8", turns.REGIONS), "sent", "copied", "arrived", "seen", "taken"),
    *("under_way", "acknowledged", "outbox", "outbox_last", "zero", ("early", "u8"), ("receives", "u8")),
)
_SIZES = (
    *(row.itemsize for row in (_STEP, _PLACE, _LANE_PLAN, _LINE_PLAN, _LANE, _LINE)),
    ctypes.sizeof(turns.Receives),
)


def turns_of(context: Context) -> turns.Turns | None:
    """The turns of a rank's device, where schedules of this context can go on in C."""
    return turns.of(context.device, _SIZES) if context.alone else None


class Plan(NamedTuple):
    """A rank's program, and its connections in this order."""

    head: turns.Plan
    channels: Sequence[Channel]
    rows: tuple[NDArray[Any], ...]  # what `head` points to

    @property
    def lane_count(self) -> int:
        return len(self.rows[3])


def plan_of(resolved: Resolved, width: int, costs: HostCosts) -> Plan:
    """With elements of so many bytes.  Kept with the program: collectives that are alike have it in common."""
    if width not in resolved.plans:
        resolved.plans[width] = _plan_of(resolved, width, costs)
    return resolved.plans[width]  # type: ignore[no-any-return]


def _plan_of(resolved: Resolved, width: int, costs: HostCosts) -> Plan:
    channels = list(resolved.peers)
    lines = {channel: k for k, channel in enumerate(channels)}
    steps: list[tuple[Any, ...]] = []
    lanes: list[tuple[int, ...]] = []
    sender, receiver = [-1] * len(lines), [-1] * len(lines)
    for number, lane in enumerate(resolved.program):
        begin = lane.clock.begin_ns if lane.clock else 0.0
        window = -1 if lane.window is None else lane.window
        kind = (lane.per_peer, lane.buffered, lane.clock is not None)
        lanes.append((len(steps), len(lane.steps), window, _ps(begin), *kind, 0))
        for step in lane.steps:
            if isinstance(step, Send):
                sender[lines[step.peer, step.channel]] = number
            elif isinstance(step, Recv):
                receiver[lines[step.peer, step.channel]] = number
            steps.append(_step(step, lane, lines, width, costs))
    places: list[tuple[int, int, int]] = []
    copies: list[int] = []
    rows: list[tuple[int, ...]] = []
    for k, channel in enumerate(channels):
        own, there = resolved.own.get(channel, ()), resolved.peers[channel]
        copied = resolved.copies.get(channel, ())
        clock = resolved.program[receiver[k]].clock if receiver[k] >= 0 else None
        later = clock.later_ns.get(channel[0], 0.0) if clock else 0.0
        at = len(places)
        rows.append((at, len(own), at + len(own), len(there), len(copies), sender[k], receiver[k], 0, _ps(later)))
        places += [(place.element * width, place.region, 0) for place in (*own, *there)]
        copies += [element * width for element in copied]
    arrays = (
        np.array(steps, _STEP),
        np.array(places, _PLACE),
        np.array(copies, np.uint64),
        np.array(lanes, _LANE_PLAN),
        np.array(rows, _LINE_PLAN),
    )
    head = turns.Plan(*(array.ctypes.data for array in arrays), len(steps), len(lanes), len(rows), width)
    return Plan(head, channels, arrays)


def _ps(ns: float) -> int:
    return round(ns * 1000) if ns > 0 else _NO_TIME


def _step(step: Any, lane: Lane, lines: Mapping[Channel, int], width: int, costs: HostCosts) -> tuple[Any, ...]:
    if isinstance(step, Wait):
        return (_WAIT, step.lane, 0, 0, 0, 0, 0, step.steps, 0, 0, 0)
    if isinstance(step, Work):
        assert lane.clock is not None
        return (_WORK, 0, 0, 0, 0, 0, 0, 0, round(lane.clock.takes_ns(step) * 1000), 0, 0)
    at, nbytes = step.start * width, (step.stop - step.start) * width
    if isinstance(step, Send):
        message = lane.elements(step) * width
        return (_SEND, lines[step.peer, step.channel], step.source, 0, at, 0, nbytes, message, 0, 0, 0)
    takes = _ps(0.0 if lane.clock else costs.reduce_ns(nbytes)) if step.reduce else _NO_TIME
    if isinstance(step, Recv):
        return (_RECV, lines[step.peer, step.channel], step.into, 0, at, 0, nbytes, 0, takes, step.reduce, 0)
    return (_COPY, 0, step.into, step.source, step.to * width, at, nbytes, 0, takes, step.reduce, 0)


class Compiled:
    """One rank's program, carried out once after every `reset`: what an `Execution` is."""

    compiled = True

    def __init__(
        self,
        turns_: turns.Turns,
        context: Context,
        width: int,
        memory: Memory,
        connections: Mapping[Channel, Connection],
        first: int = 0,
        receives: Mapping[int, Receives] | None = None,
        streams: Callable[[int], int] | None = None,
    ) -> None:
        """`receives`: by a queue pair's number, those that are posted ahead.  `streams`: by which each lane reduces
        (None: the host does)."""
        self.turns, self.context, self.width, self.memory = turns_, context, width, memory
        self.connections, self.first = connections, first
        self.by_number = {c.pair.number: c for c in connections.values()}
        self._receives, self._streams = receives or {}, streams
        self.owner: Any = None
        self.execution = turns.Execution(together=receives is not None)
        self.running = False
        self._added = False

    def resolve(self, resolved: Resolved) -> None:
        """What it carries out from now on."""
        self.close()
        self.plan = plan = plan_of(resolved, self.width, self.context.costs)
        lanes, lines = np.zeros(plan.lane_count, _LANE), np.zeros(len(plan.channels), _LINE)
        for k, lane in enumerate(resolved.program):
            adds = any(isinstance(step, Recv | Copy) and step.reduce for step in lane.steps) if self._streams else False
            lanes[k]["stream"] = self._streams(k) if self._streams and adds else turns.ON_HOST
        words = [-(-len(resolved.own.get(channel, ())) // 64) for channel in plan.channels]
        early, bits = np.zeros(sum(words), np.uint64), 0
        for k, channel in enumerate(plan.channels):
            connection = self.connections[channel]
            connection.own = resolved.own.get(channel, ())
            receives = self._receives.get(connection.pair.number)
            ahead = 0 if receives is None else ctypes.addressof(receives.state)
            remote = connection.remote
            lines[k] = (connection.pair.number, remote.keys, remote.at, *[0] * 10, early.ctypes.data + 8 * bits, ahead)
            bits += words[k]
        chain = np.zeros(plan.head.step_count, np.uint32)
        self._rows, self._lanes, self._lines = (early, chain), lanes, lines
        x = self.execution
        x.plan, x.lanes, x.lines, x.next = ctypes.addressof(plan.head), *(a.ctypes.data for a in (lanes, lines, chain))
        for k, region in enumerate(self.memory.regions):
            x.memory[k], x.at[k], x.keys[k] = region.address, region.at, region.key
        self._begin()

    def renew(self, first: int) -> None:
        """The same program once more, for other messages, from the beginning: nothing is left of the one before."""
        self.first = first
        self._begin()
        self.reset()

    def _begin(self) -> None:
        """From now on records are its own."""
        self.execution.first = self.first
        self.turns.add(self)
        self._added = True

    def close(self) -> None:
        """Records are no longer its own."""
        if self._added:
            self.turns.remove(self)
            self.turns.library.turns_free(ctypes.addressof(self.execution))
            self._added = False

    def reset(self) -> None:
        """Back to the beginning."""
        self.turns.library.turns_reset(ctypes.addressof(self.execution))

    def start(self, dtype: str, op: str | None) -> None:
        """Takes every lane as far as it comes."""
        self._dtype, self._op = dtype, op
        self.execution.add = native.adder(op, dtype)
        self.turns.start(self)

    def take(self, record: Record) -> None:
        """Takes a completion of ours.  What comes before `start` is kept for it."""
        self.turns.take(record)

    def combine(self, into: int, at: int, source: int, source_at: int, nbytes: int) -> None:
        """A reduction of a type, or by an operation, that C does not know."""
        regions, count = self.memory.regions, nbytes // self.width
        ours = regions[into].view(self._dtype, at, count)
        reduced(self._op, ours, regions[source].view(self._dtype, source_at, count), self.context.device.progress)

    @property
    def done(self) -> bool:
        return bool(self.turns.library.turns_done(ctypes.addressof(self.execution)))

    @property
    def steps_done(self) -> int:
        return int(self._lanes["at"].sum())

    @property
    def steps(self) -> int:
        return int(self.plan.head.step_count)

    def awaited(self) -> list[int]:
        """Indices of the peers that it waits for now, as far as it has been told of what was answered beforehand."""
        peers = set()
        for (peer, _), line, plan in zip(self.plan.channels, self._lines, self.plan.rows[4], strict=True):
            at = plan["receiver"]
            missing = at >= 0 and self._lanes[at]["at"] < self.plan.rows[3][at]["count"]
            if (missing and line["arrived"] < plan["own_count"]) or (line["sent"] and not line["acknowledged"]):
                peers.add(peer)
        return sorted(peers)
