"""A group's connections, and its collectives that hosts carry out over them: any number at a time.

All collectives of a group share one connection to each peer and channel.  A message's immediate holds the number of its
collective, and its own there.  No peer writes to a collective's memory for another one: each has its own, or one of two
that they use in turn (program.py says when that is safe).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from struct import Struct
from typing import Any

from workloads.base.entry import Algorithm
from workloads.base.vocabulary import DTYPES
from workloads.collectives.compiled import Compiled, turns_of
from workloads.collectives.execution import (
    MOST_MESSAGES,
    Connection,
    Execution,
    Memory,
    Reducer,
    Remote,
    Resolved,
    Timer,
    resolve,
)
from workloads.collectives.host import Scheduled
from workloads.collectives.schedule import (
    Channel,
    Schedule,
    Shape,
    connections,
    output_elements,
    places_of,
    program_of,
    schedule_of,
)
from workloads.collectives.shape import shape_of
from workloads.parts.context import Context
from workloads.parts.receives import Receives
from workloads.tasks.places import aligned
from workloads.verbs import Peer, QueuePair, Region, wire
from workloads.verbs.wire import Record

_KEY = Struct("<I")
_BITS = 14  # of an immediate: a message's number
assert 1 << _BITS == MOST_MESSAGES
SENT = ("dscp", "traffic_class", "transport")  # of the plan's keys: how connections send
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


@dataclass(eq=False)
class CollectiveKind:
    """Collectives of a group that are alike: the same options, size, type and reduction."""

    entry: Algorithm
    options: Mapping[str, Any]  # of the plan's `ways`
    size_bytes: int
    dtype: str
    op: str | None
    seed: int

    def __post_init__(self) -> None:
        self.ranks: list[int] = self.options["ranks"]
        self.width = DTYPES[self.dtype]
        self.schedule: Schedule = schedule_of(self.entry)
        self.shape: Shape = shape_of(self.entry, len(self.ranks), self.size_bytes, self.width, self.options, self.seed)

    def needs(self, index: int) -> Needs:
        program = program_of(self.schedule, self.shape, index)
        _, staged = places_of(self.schedule, self.shape, index)
        elements = (self.shape.length(index), staged, output_elements(program))
        return Needs(*(aligned(n * self.width) for n in elements))

    @cached_property
    def all_needs(self) -> list[Needs]:
        return [self.needs(index) for index in range(len(self.ranks))]

    def channels(self, index: int) -> list[Channel]:
        return connections(program_of(self.schedule, self.shape, index))


@dataclass
class HostCollective:
    """One collective of the group, from its preparation to its check."""

    number: int
    task: int
    slot: int
    part: Scheduled
    execution: Execution | Compiled

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
    """What a Scheduled part sees: memory of a slot; its execution is made for each collective."""

    def __init__(self, vector: Region, output: Region) -> None:
        self.vector, self.output = vector, output

    def prepare(self, shape: Shape) -> None:
        pass


class Communicator:
    """A rank's side of a group."""

    def __init__(
        self,
        context: Context,
        plan: Mapping[str, Any],
        orders: Sequence[tuple[int, Mapping[str, Any]]],
        kind_of: Callable[[Mapping[str, Any]], CollectiveKind],
        reducer: Callable[[int], Reducer],
        timer: Callable[[int], Timer],
        streams: Callable[[int], Callable[[int], int]],
        variant: Callable[[Mapping[str, Any]], int],
    ) -> None:
        """`orders`: the rank's collectives of the group that hosts carry out, each with its task's number."""
        self.context, self.device = context, context.device
        self.plan, self.orders = plan, orders
        self.reducer, self.timer, self.streams, self.variant = reducer, timer, streams, variant
        self._turns = turns_of(context)
        self.members: list[int] = plan["ranks"]
        self.kinds: dict[int, CollectiveKind] = {order["number"]: kind_of(order) for _, order in orders}
        self.by_slot: dict[int, list[tuple[int, Mapping[str, Any]]]] = {}
        for task, order in orders:
            self.by_slot.setdefault(order["slot"], []).append((task, order))
        self.base = self._layout()
        self.memory = context.region(f"group {plan['group']} {self.members}", self.nbytes)
        self.live: dict[int, HostCollective] = {}
        self._resolved: dict[int, Resolved] = {}
        self._parts: dict[tuple[int, int], Scheduled] = {}
        self._memory: dict[tuple[int, int], Memory] = {}
        self._in_c: dict[tuple[int, int], Compiled] = {}

    # Memory

    def _layout(self) -> dict[int, int]:
        """Where each slot begins: as large as the most that any member needs of it, so that all have it there."""
        base, at = {}, 0
        for slot, orders in sorted(self.by_slot.items()):
            base[slot] = at
            kinds = {self.kinds[order["number"]] for _, order in orders}
            at += max(needs.total for kind in kinds for needs in kind.all_needs)
        self.nbytes = at
        return base

    # Connections

    @cached_property
    def channels(self) -> list[tuple[int, int]]:
        """(rank, channel) of all connections."""
        mine = self.device.rank
        channels = {
            (kind.ranks[peer], channel)
            for kind in set(self.kinds.values())
            for peer, channel in kind.channels(kind.ranks.index(mine))
        }
        assert all(channel < self.plan["channels"] for _, channel in channels)
        return sorted(channels)

    def peers(self, tag: int) -> list[Peer]:
        """Whom to connect with, in the order of `channels`."""
        key, first = _KEY.pack(self.memory.key), tag + self.plan["tag"]
        marking: dict[str, Any] = {key: self.plan.get(key) for key in SENT}
        return [Peer(rank, first + channel, key, **marking) for rank, channel in self.channels]

    def connected(self, pairs: Sequence[QueuePair]) -> None:
        self.pairs = dict(zip(self.channels, pairs, strict=True))
        self.keys = {channel: _KEY.unpack(pair.private)[0] for channel, pair in self.pairs.items()}
        self.receives = {pair.number: Receives(pair, self.memory, POSTED) for pair in pairs}

    # The iteration

    def prepare(self) -> None:
        """Before an iteration: memory of each slot's first collective, and receives for all that will come."""
        expected: dict[tuple[int, int], int] = dict.fromkeys(self.pairs, 0)
        for number, kind in self.kinds.items():
            resolved = self._resolve(number)
            for (peer, channel), own in resolved.own.items():
                expected[kind.ranks[peer], channel] += len(own)
        for where, count in expected.items():
            if count > POSTED // 8:
                self.device.time_ns  # noqa: B018  (let those before reach the NIC: there is a limit to what is on its way)
            self.receives[self.pairs[where].number].expect(count)
        self.queues = {slot: iter(orders) for slot, orders in self.by_slot.items()}
        for slot in self.by_slot:
            self._next(slot)

    def _next(self, slot: int) -> None:
        """Makes a slot ready for the collective that has it next."""
        following = next(self.queues[slot], None)
        if following is not None:
            task, order = following
            self._part(slot, order, task).prepare(order["size_bytes"], self.variant(order))

    def _part(self, slot: int, order: Mapping[str, Any], task: int) -> Scheduled:
        """Collectives of a slot that are alike, which are on one stream, have all in common that is made for them."""
        kind = self.kinds[order["number"]]
        key = (slot, id(kind))
        if key not in self._parts:
            memory = self._memory[key] = self._memory_of(slot, kind)
            self.context.engine = lambda *_: _Engine(memory.vector, memory.output)
            self.context.options = kind.options
            try:
                self._parts[key] = kind.entry.load()(self.context, kind.entry, kind.ranks, kind.dtype, kind.op, 0)
            finally:
                self.context.engine = None
        part = self._parts[key]
        execution = self._execution(key, kind, order["number"], task)
        self.live[order["number"]] = HostCollective(order["number"], task, slot, part, execution)
        return part

    def _memory_of(self, slot: int, kind: CollectiveKind) -> Memory:
        needs, base = kind.all_needs[kind.ranks.index(self.device.rank)], self.base[slot]
        sizes = (needs.vector, needs.staging, needs.output)
        return Memory(*(self.memory.part(base + at, nbytes) for at, nbytes in zip(needs.at, sizes, strict=True)))

    def _resolve(self, number: int) -> Resolved:
        kind = self.kinds[number]
        if id(kind) not in self._resolved:
            index = kind.ranks.index(self.device.rank)
            self._resolved[id(kind)] = resolve(kind.schedule, kind.shape, index, kind.channels(index))
        return self._resolved[id(kind)]

    def _execution(self, key: tuple[int, int], kind: CollectiveKind, number: int, task: int) -> Execution | Compiled:
        first = number << _BITS
        if key in self._in_c:
            again = self._in_c[key]
            again.renew(first)
            again.owner = task
            return again
        resolved, base = self._resolve(number), self.base[key[0]]
        connections = {}
        for peer, channel in resolved.peers:
            where = (kind.ranks[peer], channel)
            its, at = self.keys[where], kind.all_needs[peer].at
            remote = Remote((its, its, its), (base + at[0], base + at[1], base + at[2]))
            connections[peer, channel] = Connection(self.pairs[where], remote)
        made = (self.context, kind.width, self._memory[key], connections, first)
        execution: Execution | Compiled
        if self._turns is not None:
            execution = self._in_c[key] = Compiled(self._turns, *made, self.receives, self.streams(task))
            execution.owner = task
        else:
            execution = Execution(*made)
            execution.reducer, execution.timer = self.reducer(task), self.timer(task)
        execution.resolve(resolved)
        execution.reset()
        return execution

    def take(self, record: Record) -> HostCollective:
        """Takes a completion; returns whose it is."""
        collective = self.live[(record.wr_id if record.kind == wire.SENT else record.imm) >> _BITS]
        if record.kind != wire.SENT and not collective.execution.compiled:
            self.receives[record.qp].took()
        collective.execution.take(record)
        return collective

    def finished(self, collective: HostCollective) -> None:
        """It is checked: its memory is the next one's."""
        collective.execution.close()
        del self.live[collective.number]
        self._next(collective.slot)
