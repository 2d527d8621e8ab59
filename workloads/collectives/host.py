"""Collectives whose schedule the hosts carry out: what each rank starts with, and what it must end with.

Where the vector is cut into chunks, rank i of the group has the i-th.  The group's first rank is the root of a
collective that has one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from workloads.base import data
from workloads.base.entry import Algorithm
from workloads.collectives import exchange
from workloads.collectives.engine import Engine
from workloads.collectives.schedule import Shape, Span, schedule_of, spans
from workloads.collectives.shape import shape_of
from workloads.parts.context import Context
from workloads.parts.part import Part, Wanted
from workloads.verbs.wire import Record

if TYPE_CHECKING:
    from numpy.typing import NDArray


class Expected(NamedTuple):
    """What must lie in `found`: rank `source`'s input from element `start` on (None: the reduction of all inputs)."""

    found: NDArray[Any]
    source: int | None
    start: int


class Scheduled(Part):
    """One rank's part, for any schedule.  Subclasses say what the collective means."""

    def __init__(
        self, context: Context, entry: Algorithm, ranks: Sequence[int], dtype: str, op: str | None, tag: int
    ) -> None:
        super().__init__(context, entry, ranks, dtype, op, tag)
        self.options = context.options
        self.inputs = context.inputs(self.n, dtype, self.op)
        self.input = self.inputs.of(self.index)
        largest = self._shape(max(self.options.get("sizes") or [context.largest_bytes]))
        self.engine = (context.engine or Engine)(context, ranks, schedule_of(entry), largest, self.dtype.itemsize, tag)

    def _shape(self, size_bytes: int) -> Shape:
        return shape_of(self.entry, self.n, size_bytes, self.dtype.itemsize, self.options, self.context.seed)

    def prepare(self, size_bytes: int, variant: int) -> None:
        self.shape = self._shape(size_bytes)
        self.start = variant
        length = self.shape.length(self.index)
        self.vector = self.engine.vector.view(self.dtype.name, 0, length)
        self.output = self.engine.output.view(self.dtype.name)
        given = self.given()
        if given != [Span(0, length)]:
            self._spoil(self.vector)
        for span in given:
            data.fill(self.vector[slice(*span)], self.input, self.start + span.start, self.device.progress)
        self._spoil(self.output)
        self.engine.prepare(self.shape)

    def work(self) -> Iterator[Wanted]:
        yield from self.engine.work(self.dtype.name, self.op)
        self.conclude()

    def conclude(self) -> None:
        """What is left to do when all has been received."""
        if self.op == "avg":
            for expected in self.expected():
                data.divide(expected.found, self.n)
                self.device.progress()

    def heard(self, record: Record) -> None:
        self.engine.heard(record)

    def finish(self) -> int:
        wrong = 0
        for found, source, start in self.expected():
            period = self.inputs.reduced if source is None else self.inputs.of(source)
            wrong += data.count_wrong(found, period, self.start + start, self.device.progress)
        return wrong

    def given(self) -> list[Span]:
        """What of our vector is input; the rest starts with what would be wrong there."""
        return [Span(0, self.shape.length(self.index))]

    def expected(self) -> Iterator[Expected]:
        """What we must end with."""
        yield Expected(self.vector, None, 0)

    @property
    def chunks(self) -> Sequence[Span]:
        return spans(self.shape.count, self.n)

    def _spoil(self, part: NDArray[Any]) -> None:
        data.spoil(part, self.device.progress)


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

    def given(self) -> list[Span]:
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

    def given(self) -> list[Span]:
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
