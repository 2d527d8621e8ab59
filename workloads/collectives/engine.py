"""Executes any schedule over verbs: one connection per peer and channel, RDMA writes with immediate, no credits.

Receives are posted before the collective begins.  The host does one thing at a time, so that reductions of several
lanes queue up, unless each lane has a clock of its own (`costs.reduce_by`).  Several engines share the rank's
completion queue: each gets what comes on its connections, whichever of them waits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from struct import Struct
from typing import Any

from workloads.collectives.compiled import Compiled, turns_of
from workloads.collectives.execution import Connection, Execution, Memory, Reducer, Remote, out_of_turn, resolve
from workloads.collectives.schedule import Schedule, Shape, connections, output_elements, places, program_of
from workloads.parts.context import Context
from workloads.parts.part import Wanted, drive
from workloads.verbs import Peer, wire
from workloads.verbs.wire import Record

_KEYS = Struct("<III")  # of vector, staging and output


class Engine:
    """Runs the program of one rank of a group, again and again, for vectors of any size up to the largest."""

    def __init__(
        self,
        context: Context,
        ranks: Sequence[int],
        schedule: Schedule,
        largest: Shape,
        width: int,
        tag: int,
        beyond: Callable[[int], Any] | None = None,
        reducer: Reducer | None = None,
    ):
        """Connects.  `largest` is the shape of the largest vector, `width` the bytes of an element.

        `beyond`: what stands for the queue pair to a peer that is no rank, by its channel.  `reducer`: who adds up,
        else the host, or each lane by itself.
        """
        self.context = context
        self.device = context.device
        self.schedule = schedule
        self.index = list(ranks).index(self.device.rank)
        program = program_of(schedule, largest, self.index)
        _, staged = places(program)
        self.vector = context.region("vector", max(context.largest_bytes, largest.length(self.index) * width))
        self.staging = context.region("staging", staged * width)
        self.output = context.region("output", output_elements(program) * width)
        keys = _KEYS.pack(self.vector.key, self.staging.key, self.output.key)
        self._channels = connections(program)
        members = [c for c in self._channels if c[0] < len(ranks)]
        pairs = self.device.connect([Peer(ranks[peer], tag + channel, keys) for peer, channel in members])
        by_channel = {
            c: Connection(pair, Remote(_KEYS.unpack(pair.private))) for c, pair in zip(members, pairs, strict=True)
        }
        for peer, channel in self._channels[len(members) :] if beyond else ():
            by_channel[peer, channel] = Connection(beyond(channel), Remote((0, 0, 0)))  # type: ignore[misc]
        memory = Memory(self.vector, self.staging, self.output)
        self._turns = turns_of(context) if beyond is None and reducer is None else None
        self._execution: Execution | Compiled
        if self._turns is not None:
            streams = (lambda lane: lane) if context.costs.by_channel else None
            self._execution = Compiled(self._turns, context, width, memory, by_channel, streams=streams)
        else:
            self._execution = Execution(context, width, memory, by_channel)
            if reducer is not None or context.costs.by_channel:
                self._execution.reducer = reducer or self._reduce
        context.completed |= dict.fromkeys(self._execution.by_number, self._execution.take)
        self._shape: Shape | None = None

    def prepare(self, shape: Shape) -> None:
        """Makes ready for one run: posts the receives."""
        if shape != self._shape:
            self._execution.resolve(resolve(self.schedule, shape, self.index, self._channels))
            self._shape = shape
        self._execution.reset()
        for connection in self._execution.connections.values():
            for number in range(len(connection.own)):
                connection.pair.recv(self.vector, wr_id=number)

    def run(self, dtype: str, op: str | None) -> None:
        """Returns when all has been received and all that was sent is acknowledged."""
        drive(self.device, self.work(dtype, op), self.handle)

    def work(self, dtype: str, op: str | None) -> Iterator[Wanted]:
        """The same, without waiting itself."""
        self._execution.start(dtype, op)
        total = self._execution.steps
        while not self._execution.done:
            yield None
            self.context.tick(self._execution.steps_done, total)
        self._execution.running = False

    def take(self, record: Record) -> None:
        """A completion of ours, also of a connection that is to no rank."""
        self._execution.take(record)

    def given(self, channel: int) -> bool:
        """Whether all that goes to ranks on channels before this one is acknowledged."""
        its = self._execution.connections.items()
        return all(c.acknowledged for (_, on), c in its if on < channel and c.pair.number >= 0)

    def handle(self, record: Record) -> None:
        """Takes a completion, of ours or of another engine's."""
        if record.kind == wire.COMPUTED and record.wr_id in self.context.computed:
            self.context.computed.pop(record.wr_id)()
        elif record.kind == wire.COMPUTED and self._turns is not None:
            self._turns.take(record)
        else:
            self.context.completed.get(record.qp, out_of_turn)(record)

    def _reduce(self, lane: int, ns: float, then: Callable[[], None]) -> None:
        """Each lane has a compute stream of its own."""
        self.context.computed[lane] = then
        self.device.compute(ns, wr_id=lane, stream=lane)
