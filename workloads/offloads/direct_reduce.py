"""Collectives by a ring of NICs: the host posts one request, results come into its memory (DirectReduce).

What the NICs do is in hardware/fabricd/offload/ring/.  They work like the host ring with the same schedule (ring.py),
chunk by chunk and in the same order, so results are the same to the last bit.  Reductions keep the input and put the
result beside it: when the NICs fail (no engine, its memory full, a silent neighbour), the host ring does it all again.

With `compression: bfp` float32 crosses the cables as block floating point (bfp.c there).  Every rank that sends a
partial sum rounds it, by 1/127 of the largest in its block at most; so does the one that has the result.
"""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from workloads.base import data
from workloads.collectives.schedule import Span, spans
from workloads.offloads.offloaded import OneRequest
from workloads.verbs import Group, wire

ALL_REDUCE, REDUCE_SCATTER, ALL_GATHER, LOAD = range(4)


class _DirectReduce(OneRequest):
    """One rank's part."""

    kind = "ring"
    collective: int

    def arguments_of(self) -> tuple[int, ...]:
        largest = max(self.context.largest_bytes, self.input.itemsize)
        self.compressed = bool(self.context.options.get("compression"))
        return (largest, wire.ELEMENTS[self.dtype.name], self.compressed)

    @property
    def chunks(self) -> list[slice]:
        return [slice(*span) for span in spans(self.count, self.n)]

    def post(self, group: Group, span: Span) -> None:
        group.post(
            self.vector, 0, self.result, 0, self.count,
            collective=self.collective, reduction=self.op, dtype=self.dtype.name,
        )  # fmt: skip

    def _differ(self, chunk: slice, period: NDArray[Any]) -> int:
        at, tick, within = self.start + chunk.start, self.device.progress, self._bound() if self.compressed else 0.0
        return data.count_wrong(self.out[chunk], period, at, tick, within=within)

    def _bound(self) -> float:
        """How far a compressed result may be off: 1/127 of each partial result, and what rounding sums takes."""
        n = self.n
        largest = max(float(abs(self.inputs.of(i)).max()) for i in range(n))
        sums = self.op in ("sum", "avg")
        partials = sum(k * largest if sums else largest for k in range(1, n + 1))
        return partials * (1 / 127 + 2.0**-20) / (n if self.op == "avg" else 1)


class AllReduce(_DirectReduce):
    """Reduce-scatter, then all-gather."""

    collective = ALL_REDUCE

    def _wrong(self) -> int:
        return self._differ(slice(0, self.count), self.inputs.reduced)


class ReduceScatter(_DirectReduce):
    """Rank i of the group ends with chunk i, in its place in the vector."""

    collective = REDUCE_SCATTER

    def _wrong(self) -> int:
        return self._differ(self.chunks[self.index], self.inputs.reduced)


class AllGather(_DirectReduce):
    """Rank i of the group starts with chunk i, in its place in the vector."""

    collective = ALL_GATHER

    def _fill(self) -> None:
        """Only our chunk is input; the others hold what would be wrong there."""
        data.spoil(self.mine, self.device.progress)
        own = self.chunks[self.index]
        data.fill(self.mine[own], self.input, self.start + own.start, self.device.progress)

    def _wrong(self) -> int:
        return sum(self._differ(chunk, self.inputs.of(rank)) for rank, chunk in enumerate(self.chunks))
