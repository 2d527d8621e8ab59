"""A group's connections, and its collectives that hosts carry out over them: any number at a time.

All collectives of a group share one connection to each peer and channel.  A message's immediate says of which
collective it is, and its number there.  Every collective has memory that no peer can want for another one: its own, or
one of two that take turns (program.py says when that is safe).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from struct import Struct
from typing import Any

from workloads.base.entry import Algorithm
from workloads.collectives.engine import output_elements
from workloads.collectives.execution import (
    MOST_MESSAGES,
    Channel,
    Connection,
    Execution,
    Memory,
    Reducer,
    Remote,
    Resolved,
    resolve,
)
from workloads.collectives.host import Scheduled
from workloads.collectives.schedule import Copy, Schedule, Shape, places, program_of, schedule_of, steps
from workloads.collectives.shape import shape_of
from workloads.parts.context import Context
from workloads.tasks.places import aligned
from workloads.tasks.program import CHANNELS
from workloads.verbs import Peer, QueuePair, Region, wire
from workloads.verbs.wire import Record

_KEY = Struct("<I")
_BITS = 14  # of an immediate: a message's number
assert 1 << _BITS == MOST_MESSAGES
POSTED = 8192  # receives of a connection that are posted ahead


@dataclass(frozen=True)
class Needs:
    """Bytes of a rank's vector, staging and output."""

    vector: int
    staging: int
    output: int

    @property
    def total(self) -> int:
        return self.vector + self.staging + self.output

    @property
    def at(self) -> tuple[int, int, int]:
        return 0, self.vector, self.vector + self.staging


class Kind:
    """Collectives of a group that are alike: the same way, size, type and reduction."""

    def __init__(
        self,
        entry: Algorithm,
        way: Mapping[str, Any],
        size_bytes: int,
        dtype: str,
        op: str | None,
        width: int,
        seed: int,
    ) -> None:
        self.entry, self.way, self.size_bytes, self.dtype, self.op, self.width = (
            entry,
            way,
            size_bytes,
            dtype,
            op,
            width,
        )
        self.ranks: list[int] = way["ranks"]
        self.schedule: Schedule = schedule_of(entry)
        self.shape: Shape = shape_of(entry, len(self.ranks), size_bytes, width, way, seed)

    def needs(self, index: int) -> Needs:
        program = program_of(self.schedule, self.shape, index)
        _, staged = places(program)
        elements = (self.shape.length(index), staged, output_elements(program))
        return Needs(*(aligned(n * self.width) for n in elements))

    @cached_property
    def all_needs(self) -> list[Needs]:
        return [self.needs(index) for index in range(len(self.ranks))]

    def channels(self, index: int) -> list[Channel]:
        program = program_of(self.schedule, self.shape, index)
        return sorted({(s.peer, s.channel) for s in steps(program) if not isinstance(s, Copy)})


@dataclass
class HostCollective:
    """One collective of the group, from its preparation to its check."""

    number: int
    task: int
    slot: int
    part: Scheduled
    execution: Execution

    def start(self) -> None:
        self.execution.start(self.part.dtype.name, self.part.op)

    @property
    def done(self) -> bool:
        return self.execution.done

    def finish(self) -> int:
        self.part.conclude()
        return self.part.finish()

    def awaited(self) -> list[int]:
        return [self.part.ranks[index] for index in self.execution.awaited()]


class _Engine:
    """What a Scheduled part sees: memory of a slot, and an execution that is made for each collective."""

    def __init__(self, vector: Region, output: Region, prepare: Callable[[], None]) -> None:
        self.vector, self.output = vector, output
        self._prepare = prepare

    def prepare(self, shape: Shape) -> None:
        self._prepare()


class Communicator:
    """A rank's side of a group."""

    def __init__(
        self,
        context: Context,
        told: Mapping[str, Any],
        orders: Sequence[tuple[int, Mapping[str, Any]]],
        kind_of: Callable[[Mapping[str, Any]], Kind],
        reducer: Callable[[int], Reducer],
        variant: Callable[[Mapping[str, Any]], int],
    ) -> None:
        """`orders`: the rank's collectives of the group that hosts carry out, each with its task's number."""
        self.context, self.device = context, context.device
        self.told, self.orders = told, orders
        self.reducer, self.variant = reducer, variant
        self.members: list[int] = told["ranks"]
        self.kinds: dict[int, Kind] = {order["number"]: kind_of(order) for _, order in orders}
        self.by_slot: dict[int, list[tuple[int, Mapping[str, Any]]]] = {}
        for task, order in orders:
            self.by_slot.setdefault(order["slot"], []).append((task, order))
        self.base = self._layout()
        self.memory = context.region(f"group {told['group']} {self.members}", self.nbytes)
        self.live: dict[int, HostCollective] = {}
        self._resolved: dict[int, Resolved] = {}
        self._parts: dict[tuple[int, int], Scheduled] = {}

    # Memory

    def _layout(self) -> dict[int, int]:
        """Where each slot begins: as large as the most that any member needs of it, so that all have it there."""
        base, at = {}, 0
        for slot, its in sorted(self.by_slot.items()):
            base[slot] = at
            kinds = {id(k): k for _, order in its for k in (self.kinds[order["number"]],)}
            at += max(needs.total for kind in kinds.values() for needs in kind.all_needs)
        self.nbytes = at
        return base

    # Connections

    @cached_property
    def channels(self) -> list[tuple[int, int]]:
        """(rank, channel) of all connections."""
        mine = self.device.rank
        found = {
            (kind.ranks[peer], channel)
            for kind in {id(k): k for k in self.kinds.values()}.values()
            for peer, channel in kind.channels(kind.ranks.index(mine))
        }
        assert all(channel < CHANNELS for _, channel in found)
        return sorted(found)

    def peers(self, tag: int) -> list[Peer]:
        """Whom to connect with, in the order of `channels`."""
        key, told = _KEY.pack(self.memory.key), self.told
        first = tag + told["tag"]
        return [
            Peer(rank, first + channel, key, dscp=told["dscp"], traffic_class=told["traffic_class"])
            for rank, channel in self.channels
        ]

    def connected(self, pairs: Sequence[QueuePair]) -> None:
        self.pairs = dict(zip(self.channels, pairs, strict=True))
        self.keys = {channel: _KEY.unpack(pair.private)[0] for channel, pair in self.pairs.items()}
        self.to_post: dict[int, int] = {}
        self.by_number = {pair.number: pair for pair in pairs}

    # The iteration

    def prepare(self) -> None:
        """Before an iteration: memory of each slot's first collective, and receives for all that will come."""
        expected: dict[tuple[int, int], int] = dict.fromkeys(self.pairs, 0)
        for number, kind in self.kinds.items():
            resolved = self._resolve(number)
            for (peer, channel), own in resolved.own.items():
                expected[kind.ranks[peer], channel] += len(own)
        for where, count in expected.items():
            pair = self.pairs[where]
            if count > POSTED // 8:
                self.device.time_ns  # noqa: B018  (let those before reach the NIC: there is a limit to what is on its way)
            for _ in range(min(count, POSTED)):
                pair.recv(self.memory)
            self.to_post[pair.number] = count - min(count, POSTED)
        self.turns = {slot: iter(its) for slot, its in self.by_slot.items()}
        for slot in self.by_slot:
            self._next(slot)

    def _next(self, slot: int) -> None:
        """Makes a slot ready for the collective that has it next."""
        following = next(self.turns[slot], None)
        if following is not None:
            task, order = following
            self._part(slot, order, task).prepare(order["size_bytes"], self.variant(order))

    def _part(self, slot: int, order: Mapping[str, Any], task: int) -> Scheduled:
        kind = self.kinds[order["number"]]
        needs = kind.all_needs[kind.ranks.index(self.device.rank)]
        memory = Memory(*self._pieces(self.base[slot], needs))
        key = (slot, id(kind))
        if key not in self._parts:
            self.context.engine = lambda *_: _Engine(memory.vector, memory.output, lambda: None)
            self.context.options = kind.way
            try:
                self._parts[key] = kind.entry.load()(self.context, kind.entry, kind.ranks, kind.dtype, kind.op, 0)
            finally:
                self.context.engine = None
        part = self._parts[key]
        execution = self._execution(slot, kind, order["number"], memory)
        execution.reducer = self.reducer(task)
        self.live[order["number"]] = HostCollective(order["number"], task, slot, part, execution)
        return part

    def _pieces(self, base: int, needs: Needs) -> Iterator[Region]:
        for at, nbytes in zip(needs.at, (needs.vector, needs.staging, needs.output), strict=True):
            yield self.memory.part(base + at, nbytes)

    def _resolve(self, number: int) -> Resolved:
        kind = self.kinds[number]
        if id(kind) not in self._resolved:
            index = kind.ranks.index(self.device.rank)
            self._resolved[id(kind)] = resolve(kind.schedule, kind.shape, index, kind.channels(index))
        return self._resolved[id(kind)]

    def _execution(self, slot: int, kind: Kind, number: int, memory: Memory) -> Execution:
        resolved, base = self._resolve(number), self.base[slot]
        connections = {}
        for peer, channel in resolved.peers:
            where = (kind.ranks[peer], channel)
            key, at = self.keys[where], kind.all_needs[peer].at
            remote = Remote((key, key, key), (base + at[0], base + at[1], base + at[2]))
            connections[peer, channel] = Connection(self.pairs[where], remote)
        execution = Execution(self.context, kind.width, memory, connections, number << _BITS)
        execution.resolve(resolved)
        execution.reset()
        return execution

    def take(self, record: Record) -> HostCollective:
        """Takes a completion; returns whose it is."""
        if record.kind == wire.SENT:
            number = record.wr_id >> _BITS
        else:
            number = record.imm >> _BITS
            if self.to_post[record.qp]:
                self.to_post[record.qp] -= 1
                self.by_number[record.qp].recv(self.memory)
        its = self.live[number]
        its.execution.take(record)
        return its

    def finished(self, its: HostCollective) -> None:
        """It is checked: its memory is the next one's."""
        del self.live[its.number]
        self._next(its.slot)
