"""Collectives by a ring of NICs: the host posts one request, results come into its memory (DirectReduce).

What the NICs do is hardware/fabricd/offload_ring.c and the files that it names.  They work like the host ring with the
same schedule (ring.py), chunk by chunk and in the same order, so results are the same to the last bit.  Reductions
leave the input as it is and put the result beside it: when the NICs cannot (no engine, no memory left in it, a
neighbour that does not answer), the host ring does it all again, and the result says so.

With `compression: bfp` float32 crosses the cables as block floating point (hardware/fabricd/bfp.c).  Every rank that
sends a partial sum rounds it, by 1/127 of the largest in its block at most; so does the one that has the result.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from numpy.typing import NDArray

from workloads import data, wire
from workloads.collectives.schedule import spans
from workloads.context import Context, Part
from workloads.registry import Collective, find
from workloads.verbs import FabricError

ALL_REDUCE, REDUCE_SCATTER, ALL_GATHER, LOAD = range(4)

_AGREE = 1 << 30  # tags of syncs: apart from those of steps


class _DirectReduce:
    """One rank's part."""

    collective: int

    def __init__(
        self, context: Context, entry: Collective, ranks: Sequence[int], dtype: str, op: str | None, tag: int
    ) -> None:
        self.context, self.entry, self.ranks, self.dtype, self.tag = context, entry, ranks, dtype, tag
        self.op = op if entry.ops else None
        self.device = context.device
        self.index = list(ranks).index(self.device.rank)
        self.vector = context.region("vector")
        self.result = context.region("result") if entry.ops else self.vector
        self.inputs = data.Inputs(context.seed, len(ranks), dtype, self.op)
        self.input = self.inputs.of(self.index)
        most = max(context.largest_bytes, self.input.itemsize)
        self.compressed = bool(context.options.get("compression"))
        self.group = self.device.group(wire.RING, tag, ranks, (most, wire.ELEMENTS[dtype], self.compressed))
        self.fallback = self.group.refused
        self._ring: Part | None = None
        if self.fallback:
            self._fall_back()

    def _fall_back(self) -> Part:
        if self._ring is None:
            entry = find(self.entry.name, "ring")
            self._ring = entry.load()(self.context, entry, self.ranks, self.dtype, self.op, self.tag)
        return self._ring

    def prepare(self, size_bytes: int, variant: int) -> None:
        self.size_bytes, self.start = size_bytes, variant
        if self.fallback:
            self._fall_back().prepare(size_bytes, variant)
            return
        self.count = size_bytes // self.input.itemsize
        self.chunks = [slice(*span) for span in spans(self.count, len(self.ranks))]
        self.mine = self.vector.view(self.dtype, 0, self.count)
        self.out = self.result.view(self.dtype, 0, self.count)
        self._fill()

    def _fill(self) -> None:
        data.fill(self.mine, self.input, self.start, self.device.progress)
        data.spoil(self.out, self.device.progress)

    def run(self) -> None:
        if self.fallback:
            self._fall_back().run()
            return
        if self.count:
            where = (self.vector, 0, self.result, 0, self.count)
            self.group.post(*where, collective=self.collective, reduction=self.op, dtype=self.dtype)
            self._wait()
        self.device.sync(_AGREE + self.tag, len(self.ranks))
        for record in self.device.poll():
            self._heard(record)
        if self.fallback:
            again = self._fall_back()
            again.prepare(self.size_bytes, self.start)
            again.run()

    def _wait(self) -> None:
        done = False
        while not done and not self.fallback:
            for record in self.device.wait():
                done = self._heard(record) or done

    def _heard(self, record: wire.Record) -> bool:
        if record.kind == wire.GROUP_FAILED:
            self.fallback = record.private.decode("utf-8", "replace") or "the group has failed"
        elif record.kind != wire.OFFLOADED:
            raise FabricError(f"a record of kind {record.kind} in a collective by the NICs")
        return record.kind == wire.OFFLOADED

    def finish(self) -> int:
        return self._fall_back().finish() if self.fallback else self._wrong()

    def _wrong(self) -> int:
        raise NotImplementedError

    def _differ(self, chunk: slice, period: NDArray[Any]) -> int:
        at, tick, within = self.start + chunk.start, self.device.progress, self._bound() if self.compressed else 0.0
        return data.count_wrong(self.out[chunk], period, at, tick, within=within)

    def _bound(self) -> float:
        """How far a compressed result may be off: 1/127 of each partial result, and what rounding sums takes."""
        n = len(self.ranks)
        largest = max(float(abs(self.inputs.of(i)).max()) for i in range(n))
        sums = self.op in ("sum", "avg")
        partials = sum(k * largest if sums else largest for k in range(1, n + 1))
        return partials * (1 / 127 + 2.0**-20) / (n if self.op == "avg" else 1)

    def close(self) -> None:
        self.group.leave()


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
