"""Collectives whose schedule the hosts carry out: what each rank starts with, and what it must end with.

Where the vector is cut into chunks, rank i of the group has the i-th.  The group's first rank is the root of a
collective that has one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from workloads.base import data
from workloads.collectives import exchange
from workloads.collectives.engine import Engine
from workloads.collectives.schedule import Shape, Span, schedule_of
from workloads.collectives.shape import shape_of
from workloads.parts.part import Part, Wanted
from workloads.verbs.wire import Record

if TYPE_CHECKING:
    from numpy.typing import NDArray


class Expected(NamedTuple):
    """What `result` must be: rank `source`'s input from element `start` on (None: the reduction of all inputs)."""

    result: NDArray[Any]
    source: int | None
    start: int


class Scheduled(Part):
    """One rank's part, for any schedule.  Subclasses say what the collective means."""

    _kept: tuple[Mapping[str, Any] | None, int, Shape | None] = (None, 0, None)

    def setup(self) -> None:
        self.inputs = self.context.inputs(self.n, self.dtype.name, self.op)
        self.input = self.inputs.of(self.index)
        largest = self._shape(max(self.options.get("sizes") or [self.context.largest_bytes]))
        engine, schedule = self.context.engine or Engine, schedule_of(self.entry)
        self.engine = engine(self.context, self.ranks, schedule, largest, self.dtype.itemsize, self.tag)

    def _shape(self, size_bytes: int) -> Shape:
        """The last one is kept: collectives of a step that are alike ask for it again and again."""
        options, size, shape = self._kept
        if shape is None or size != size_bytes or options is not self.options:
            shape = shape_of(self.entry, self.n, size_bytes, self.dtype.itemsize, self.options, self.context.seed)
            self._kept = self.options, size_bytes, shape
        return shape

    def prepare(self, size_bytes: int, variant: int) -> None:
        self.shape = self._shape(size_bytes)
        self.start = variant
        length = self.shape.length(self.index)
        self.vector = self.engine.vector.view(self.dtype.name, 0, length)
        self.output = self.engine.output.view(self.dtype.name)
        inputs = self.input_spans()
        if inputs != [Span(0, length)]:
            data.spoil(self.vector, self.device.progress)
        for span in inputs:
            data.fill(self.vector[slice(*span)], self.input, self.start + span.start, self.device.progress)
        data.spoil(self.output, self.device.progress)
        if self.entry.apart:
            self.vector = self.output[:length]  # in which the result is to be
        self.engine.prepare(self.shape)

    def work(self) -> Iterator[Wanted]:
        yield from self.engine.work(self.dtype.name, self.op)
        self.conclude()

    def conclude(self) -> None:
        """What is left to do when all has been received."""
        if self.op == "avg":
            for expected in self.expected():
                data.divide(expected.result, self.n)
                self.device.progress()

    def handle(self, record: Record) -> None:
        self.engine.handle(record)

    def finish(self) -> int:
        wrong = 0
        for result, source, start in self.expected():
            period = self.inputs.reduced if source is None else self.inputs.of(source)
            wrong += data.count_wrong(result, period, self.start + start, self.device.progress)
        return wrong

    def input_spans(self) -> list[Span]:
        """What of our vector is input; the rest starts with wrong values."""
        return [Span(0, self.shape.length(self.index))]

    def expected(self) -> Iterator[Expected]:
        """What we must end with."""
        yield Expected(self.vector, None, 0)

    @property
    def chunks(self) -> Sequence[Span]:
        return self.shape.chunks


class AllReduce(Scheduled):
    """Every rank ends with the reduction."""


class ReduceScatter(Scheduled):
    """Each rank ends with its chunk of the reduction."""

    def expected(self) -> Iterator[Expected]:
        chunk = self.chunks[self.index]
        yield Expected(self.vector[slice(*chunk)], None, chunk.start)


class Reduce(Scheduled):
    """The root ends with the reduction."""

    def expected(self) -> Iterator[Expected]:
        if self.index == 0:
            yield Expected(self.vector, None, 0)


class AllGather(Scheduled):
    """Every rank ends with all chunks."""

    def input_spans(self) -> list[Span]:
        return [self.chunks[self.index]]

    def expected(self) -> Iterator[Expected]:
        for rank, chunk in enumerate(self.chunks):
            yield Expected(self.vector[slice(*chunk)], rank, chunk.start)


class Gather(AllGather):
    """The root ends with all chunks."""

    def expected(self) -> Iterator[Expected]:
        if self.index == 0:
            yield from super().expected()


class Broadcast(Scheduled):
    """Every rank ends with the root's vector."""

    def input_spans(self) -> list[Span]:
        return [Span(0, self.shape.count)] if self.index == 0 else []

    def expected(self) -> Iterator[Expected]:
        yield Expected(self.vector, 0, 0)


class Scatter(Broadcast):
    """Each rank ends with its chunk of the root's vector."""

    def expected(self) -> Iterator[Expected]:
        chunk = self.chunks[self.index]
        yield Expected(self.vector[slice(*chunk)], 0, chunk.start)


class AllToAll(Scheduled):
    """Each rank ends with what every rank's vector has for it, in rank order."""

    def expected(self) -> Iterator[Expected]:
        for rank, landed in enumerate(exchange.landings(self.shape, self.index)):
            yield Expected(self.output[slice(*landed)], rank, exchange.parts(self.shape, rank)[self.index].start)


class SendReceive(Scheduled):
    """Whoever receives ends with the vector of the rank before it."""

    def expected(self) -> Iterator[Expected]:
        if self.index or self.entry.max_ranks is None:
            yield Expected(self.output[: self.shape.count], (self.index - 1) % self.n, 0)


class Barrier(Scheduled):
    """Nothing is left behind."""

    def expected(self) -> Iterator[Expected]:
        yield from ()
