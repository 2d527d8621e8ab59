"""Sums and copies in the switch of a scale-up domain: NVLink SHARP, as NCCL's NVLS uses it.

Each rank owns a part of the vector: it loads what the switch adds up of all ranks' shares, and stores the sums, or what
it has itself, to all at once.  What a rank's GPU does is hardware/fabricd/offload/domain/.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from workloads.base import data
from workloads.collectives.schedule import Span, spans
from workloads.offloads.offloaded import OneRequest
from workloads.verbs import Group

SUMS, COPIES, ROOTED = 1, 2, 4
"""What a request does, as fabricd has it (offload/domain/domain.h)."""


class _Domain(OneRequest):
    """One rank's part."""

    kind = "domain"
    does = 0

    def arguments_of(self) -> tuple[int, ...]:
        return ()

    def post(self, group: Group, span: Span) -> None:
        name = self.dtype.name
        group.post(
            self.vector, 0, self.result, 0, span.stop, collective=self.does, reduction=self.op or "sum", dtype=name
        )

    @property
    def parts(self) -> Sequence[Span]:
        """Of the vector, each rank's."""
        return spans(self.count, self.n)


class AllReduce(_Domain):
    """All have the sums."""

    does = SUMS | COPIES

    def _wrong(self) -> int:
        return data.count_wrong(self.out, self.inputs.reduced, self.start, self.device.progress)


class ReduceScatter(_Domain):
    """Each has its part of them."""

    does = SUMS

    def _wrong(self) -> int:
        own, tick = self.parts[self.index], self.device.progress
        return data.count_wrong(self.out[slice(*own)], self.inputs.reduced, self.start + own.start, tick)


class AllGather(_Domain):
    """All have each rank's part."""

    does = COPIES

    def _given(self) -> Iterator[tuple[Span, int]]:
        """What there is to be had, and from whom."""
        yield from ((part, rank) for rank, part in enumerate(self.parts))

    def _fill(self) -> None:
        tick = self.device.progress
        data.spoil(self.mine, tick)
        for part, rank in self._given():
            if rank == self.index:
                data.fill(self.mine[slice(*part)], self.input, self.start + part.start, tick)

    def _wrong(self) -> int:
        return sum(
            data.count_wrong(
                self.out[slice(*part)], self.inputs.of(rank), self.start + part.start, self.device.progress
            )
            for part, rank in self._given()
        )


class Broadcast(AllGather):
    """All have the first rank's vector."""

    does = COPIES | ROOTED

    def _given(self) -> Iterator[tuple[Span, int]]:
        yield Span(0, self.count), 0
