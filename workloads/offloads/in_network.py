"""Reductions in the network: contributions go to accelerators on switches, sums come back (SwitchML, SHARP).

Sums go to all ranks, to the first one, or each part of the vector to the rank whose it is.  A barrier is a sum of one
integer.

What a rank's NIC does is hardware/fabricd/offload/aggregate/.  No slots, no accelerator, no controller, or
contributions that are not answered: then the ring does it, and the result says so (offloaded.py).
"""

from __future__ import annotations

from collections.abc import Iterator

from workloads.base import data
from workloads.collectives.schedule import Span, spans
from workloads.offloads.offloaded import OneRequest
from workloads.parts.context import Context

TO_ALL, TO_ONE, IN_PARTS = range(3)
"""Who wants the sums, as fabricd has it (offload/block.h); one: a member by its index, or the first."""


class _Reduction(OneRequest):
    """One rank's part."""

    kind = "aggregate"
    wanted = TO_ALL

    def _arguments(self) -> tuple[int, ...]:
        return self.arguments(self.context)

    @staticmethod
    def arguments(context: Context) -> tuple[int, ...]:
        """Of the group."""
        plan = context.options["aggregation"]
        convert = int(context.costs.convert_bps or 0)
        return plan["slots"], plan["elements"], round(plan["timeout_ns"] * 1000), plan["retry"], convert

    def _post(self) -> None:
        request = {"collective": self.wanted, "reduction": self.op, "dtype": self.dtype.name}
        self._request(self.vector, self.result, self.count, **request)

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

    def _post(self) -> None:
        self._request(self.vector, self.result, 1)

    def _wrong(self) -> int:
        return 0
