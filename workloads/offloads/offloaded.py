"""What all collectives share that others do for the ranks: a group, one request, and the ring when that cannot be.

The result goes beside the input, so that the ranks can do it all again by themselves: when the group is refused,
before anything is sent; when it fails, once that is agreed.  They agree without cost, when all are through: a rank that
has its result must not go on while another lacks some.
"""

from __future__ import annotations

from collections.abc import Sequence

from workloads.base import data
from workloads.parts.context import Context, Part
from workloads.registry import Collective, find
from workloads.verbs import FabricError, Group, wire

_AGREE = 1 << 30  # tags of syncs: apart from those of steps


class Offloaded:
    """One rank's part.  Subclasses say how the group is made, what is posted, and what must come of it."""

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
        self.group = self._join()
        self.fallback = self.group.refused
        self._ring: Part | None = None
        if self.fallback:
            self._fall_back()

    def _join(self) -> Group:
        raise NotImplementedError

    def _post(self) -> None:
        """The one request, of `count` elements."""
        raise NotImplementedError

    def _wrong(self) -> int:
        """Elements of the result that are wrong."""
        raise NotImplementedError

    def _fill(self) -> None:
        data.fill(self.mine, self.input, self.start, self.device.progress)
        data.spoil(self.out, self.device.progress)

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
        self.mine = self.vector.view(self.dtype, 0, self.count)
        self.out = self.result.view(self.dtype, 0, self.count)
        self._fill()

    def run(self) -> None:
        if self.fallback:
            self._fall_back().run()
            return
        if self.count:
            self._post()
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
            raise FabricError(f"a record of kind {record.kind} in {self.entry.name} by {self.entry.algorithm}")
        return record.kind == wire.OFFLOADED

    def finish(self) -> int:
        return self._fall_back().finish() if self.fallback else self._wrong()

    def close(self) -> None:
        self.group.leave()
