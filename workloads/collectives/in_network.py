"""All-reduce in the network: contributions go to accelerators on switches, sums come back (SwitchML).

What a rank's NIC does is hardware/fabricd/aggregate.c.  The result goes beside the input, so that the ranks can do it
all again by themselves when the network cannot: no slots, no accelerator, no controller, or contributions that are not
answered.  Then the ring does, and the result says so.

Whether the network could is agreed between the ranks, without cost, when all are through: a rank that has its sums
must not go on while another lacks some.
"""

from __future__ import annotations

from collections.abc import Sequence

from workloads import data, wire
from workloads.context import Context, Part
from workloads.registry import Collective, find
from workloads.verbs import FabricError

_AGREE = 1 << 30  # tags of syncs: apart from those of steps


class AllReduce:
    """One rank's part."""

    kind = wire.AGGREGATE

    def __init__(
        self, context: Context, entry: Collective, ranks: Sequence[int], dtype: str, op: str | None, tag: int
    ) -> None:
        self.context, self.ranks, self.dtype, self.op, self.tag = context, ranks, dtype, op, tag
        self.device = context.device
        self.result = context.region("result")
        self.vector = context.region("vector")
        self.inputs = data.Inputs(context.seed, len(ranks), dtype, op)
        self.input = self.inputs.of(list(ranks).index(self.device.rank))
        self.group = self.device.group(self.kind, tag, ranks, self.arguments(context))
        self.fallback = self.group.refused
        self._ring: Part | None = None
        if self.fallback:
            self._fall_back()

    @staticmethod
    def arguments(context: Context) -> tuple[int, ...]:
        """Of the group."""
        plan = context.options["aggregation"]
        convert = int(context.costs.convert_bps or 0)
        return plan["slots"], plan["elements"], round(plan["timeout_ns"] * 1000), plan["retry"], convert

    def _fall_back(self) -> Part:
        if self._ring is None:
            entry = find("all_reduce", "ring")
            self._ring = entry.load()(self.context, entry, self.ranks, self.dtype, self.op, self.tag)
        return self._ring

    def prepare(self, size_bytes: int, variant: int) -> None:
        self.size_bytes, self.start = size_bytes, variant
        if self.fallback:
            self._fall_back().prepare(size_bytes, variant)
            return
        self.count = size_bytes // self.input.itemsize
        data.fill(self.vector.view(self.dtype, 0, self.count), self.input, variant, self.device.progress)
        self.sums = self.result.view(self.dtype, 0, self.count)
        data.spoil(self.sums, self.device.progress)

    def run(self) -> None:
        if self.fallback:
            self._fall_back().run()
            return
        if self.count:
            self.group.post(self.vector, 0, self.result, 0, self.count, reduction=self.op, dtype=self.dtype)
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
            raise FabricError(f"a record of kind {record.kind} in an all-reduce by the network")
        return record.kind == wire.OFFLOADED

    def close(self) -> None:
        self.group.leave()

    def finish(self) -> int:
        if self.fallback:
            return self._fall_back().finish()
        return data.count_wrong(self.sums, self.inputs.reduced, self.start, self.device.progress)
