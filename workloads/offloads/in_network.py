"""Reductions in the network: contributions go to accelerators on switches, sums come back (SwitchML, SHARP).

Sums go to all ranks, to the first one, or each part of the vector to the rank whose it is.  A barrier is a sum of one
integer.

With `trees` the vector is shared among as many groups, each with a tree, slots and a root of its own.

What a rank's NIC does is hardware/fabricd/offload/aggregate/.  No slots, no accelerator, no controller, or
contributions that are not answered: then the ring does it, and the result says so (offloaded.py).
"""

from __future__ import annotations

from collections.abc import Iterator

from workloads.base import data
from workloads.collectives.schedule import Span, spans
from workloads.offloads.offloaded import OneRequest
from workloads.parts.context import Context
from workloads.verbs import Group

TO_ALL, TO_ONE, IN_PARTS = range(3)
"""Who wants the sums, as fabricd has it (offload/block.h); one: a member by its index, or the first."""


class _Reduction(OneRequest):
    """One rank's part."""

    kind = "aggregate"
    wanted = TO_ALL

    def setup(self) -> None:
        self.groups, self.unit = self.options.get("trees") or 1, self.options["aggregation"]["elements"]
        super().setup()

    def arguments_of(self) -> tuple[int, ...]:
        return self.arguments(self.context)

    @staticmethod
    def arguments(context: Context) -> tuple[int, ...]:
        """Of a group."""
        plan = context.options["aggregation"]
        convert = int(context.costs.convert_bps or 0)
        return plan["slots"], plan["elements"], round(plan["timeout_ns"] * 1000), plan["retry"], convert

    def post(self, group: Group, span: Span) -> None:
        at, count = span.start * self.dtype.itemsize, span.stop - span.start
        group.post(
            self.vector, at, self.result, at, count,
            collective=self.wanted, reduction=self.op, dtype=self.dtype.name, args=(span.start, self.count),
        )  # fmt: skip

    def _own(self) -> Iterator[Span]:
        """What of the result this rank wants."""
        yield Span(0, self.count)

    def _wrong(self) -> int:
        tick, reduced = self.device.progress, self.inputs.reduced
        return sum(data.count_wrong(self.out[slice(*s)], reduced, self.start + s.start, tick) for s in self._own())


class AllReduce(_Reduction):
    """All have the sums."""


class Reduce(_Reduction):
    """The group's first rank has them."""

    wanted = TO_ONE

    def _own(self) -> Iterator[Span]:
        if self.index == 0:
            yield Span(0, self.count)


class ReduceScatter(_Reduction):
    """Each has its part of them."""

    wanted = IN_PARTS

    def _own(self) -> Iterator[Span]:
        yield spans(self.count, self.n)[self.index]


class Barrier(_Reduction):
    """All have heard of all."""

    def setup(self) -> None:
        super().setup()
        self.vector = self.result = self.context.region("vector", 4)

    def prepare(self, size_bytes: int, variant: int) -> None:
        super().prepare(size_bytes, variant)
        self.count = 1

    def post(self, group: Group, span: Span) -> None:
        group.post(self.vector, 0, self.result, 0, 1)

    def _wrong(self) -> int:
        return 0
