"""All-reduce by the switches of scale-up domains, and those along the rails: NCCL's NVLS with CollNet.

The vector goes in slabs.  Of each, a domain's switch adds up the shares of the server's GPUs, a part for each; the
rail's switches add up what the servers have of that part; then every GPU stores its part to all of its server
(nvls.py).  No GPU adds anything.  When a rail's group is refused or fails, its ranks add up theirs by a ring along the
rail, as in collnet.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from workloads.base import data
from workloads.collectives import ring
from workloads.collectives.engine import Engine
from workloads.collectives.rails import Place
from workloads.collectives.schedule import Shape, Span, lying, pieces, spans
from workloads.collectives.shape import shape_of
from workloads.offloads.collnet import Rail
from workloads.offloads.nvls import COPIES, SUMS
from workloads.offloads.offloaded import AGREE
from workloads.parts.part import Sync, Wanted
from workloads.verbs import FabricError, Group, Region, wire
from workloads.verbs.wire import Record

MOST = 32
"""Requests of a group that are under way at a time."""


class AllReduce(Rail):
    """One rank's part."""

    def setup(self) -> None:
        context = self.context
        self.inputs = context.inputs(self.n, self.dtype.name, self.op)
        self.input = self.inputs.of(self.index)
        self.vector, self.sums, self.result = (context.region(name) for name in ("vector", "sums", "result"))
        largest = self._shape(context.largest_bytes)
        self.here = Place(largest, self.index)
        server = [self.ranks[k] for k in self.here.server_ranks()]
        self.inside, self.out = (self.device.group("domain", self.tag + k, server, ()) for k in range(2))
        alone = context.beside(-1 - self.tag, 1, self.options)
        along = replace(alone, completed=context.completed)  # records go by their queue pairs
        width = self.dtype.itemsize
        self.ring = Engine(along, self.members, ring.all_reduce, self._share(self._slabs(largest)), width, self.tag)
        self._join()
        self.by_hosts = False  # but for this rail

    def _shape(self, size_bytes: int) -> Shape:
        return shape_of(self.entry, self.n, size_bytes, self.dtype.itemsize, self.options, self.context.seed)

    def _slabs(self, shape: Shape) -> list[Span]:
        return pieces(0, shape.count, shape.chunk and shape.chunk * self.here.gpus)

    def _part(self, slab: Span) -> Span:
        """Of a slab, this GPU's."""
        own = spans(slab.stop - slab.start, self.here.gpus)[self.here.gpu]
        return Span(slab.start + own.start, slab.start + own.stop)

    def _share(self, slabs: Sequence[Span]) -> Shape:
        """Of a ring along the rail."""
        return Shape(self.here.servers, sum(map(_length, map(self._part, slabs))))

    def prepare(self, size_bytes: int, variant: int) -> None:
        self._renewed()
        self.shape, self.start = self._shape(size_bytes), variant
        self.slabs = self._slabs(self.shape)
        name, count = self.dtype.name, self.shape.count
        self.mine, self.got = (region.view(name, 0, count) for region in (self.vector, self.result))
        data.fill(self.mine, self.input, self.start, self.device.progress)
        data.spoil(self.got, self.device.progress)

    def work(self) -> Iterator[Wanted]:
        self.fallback, every = self._note, len(self.slabs)
        self.asked = self.summed = self.sent_up = self.back = self.added = self.given = self.copied = 0
        self._go_on()
        while self.added < every and not (self.given_up and self.summed == every):
            yield None
        yield Sync(AGREE + self.group_tag, self.here.servers)
        if self.renewal is not None and self.given_up and self.group is None:
            self.renewal.look()
        if self.given_up:
            self.fallback = self.given_up
            yield from self._along_the_rail()
            self.added = every
            self._go_on()
        else:
            self._worked = True
        while self.copied < every:
            yield None
        if self.op == "avg":
            data.divide(self.got, self.n)
        if self.given_up and self.group is not None and not self.group.refused:
            self._renew()

    def _go_on(self) -> None:
        """Posts what may be posted: a slab's sums, our part's along the rail, and its copies."""
        op = "sum" if self.op == "avg" else self.op  # hosts divide
        request = {"reduction": op, "dtype": self.dtype.name}
        while self.asked < len(self.slabs) and self.asked - self.summed < MOST:
            slab = self.slabs[self.asked]
            self._post(self.inside, self.vector, self.sums, slab, collective=SUMS, **request)
            self.asked += 1
        while not self.given_up and self.sent_up < self.summed and self.sent_up - self.added < MOST:
            self._post(self.group, self.sums, self.result, self._part(self.slabs[self.sent_up]), **request)
            self.sent_up += 1
        while self.added < self.sent_up and (self.back or not _length(self._part(self.slabs[self.added]))):
            self.back -= bool(_length(self._part(self.slabs[self.added])))
            self.added += 1
        while self.given < self.added and self.given - self.copied < MOST:
            slab = self.slabs[self.given]
            self._post(self.out, self.result, self.result, slab, collective=COPIES, **request)
            self.given += 1

    def _post(self, group: Group | None, source: Region, target: Region, span: Span, **request: Any) -> None:
        assert group is not None
        at = span.start * self.dtype.itemsize
        if _length(span):
            group.post(source, at, target, at, _length(span), **request)

    def _along_the_rail(self) -> Iterator[Wanted]:
        """Our parts of all slabs, of which each rank lacks other ones."""
        shape, name = self._share(self.slabs), self.dtype.name
        parts = list(map(self._part, self.slabs))
        share, sums = self.ring.vector.view(name, 0, shape.count), self.sums.view(name)
        places = lying([_length(part) for part in parts])
        for part, place in zip(parts, places, strict=True):
            share[slice(*place)] = sums[slice(*part)]
        self.ring.prepare(shape)
        yield from self.ring.work(name, self.op)
        for part, place in zip(parts, places, strict=True):
            self.got[slice(*part)] = share[slice(*place)]

    def of_group(self, record: Record) -> bool:
        return record.qp in (self.inside.number, self.out.number) or super().of_group(record)

    def handle(self, record: Record) -> None:
        if record.kind == wire.OFFLOADED and record.qp == self.inside.number:
            self.summed += 1
        elif record.kind == wire.OFFLOADED and record.qp == self.out.number:
            self.copied += 1
        elif record.qp in (self.inside.number, self.out.number):
            raise FabricError(record.private.decode("utf-8", "replace") or "a domain's group has failed")
        elif record.kind in (wire.GROUPED, wire.OFFLOADED, wire.GROUP_FAILED, wire.GROUP_NOTED):
            super().handle(record)
        else:
            self.ring.handle(record)
        self._go_on()

    def _done(self, record: Record) -> None:
        self.back += not self.given_up

    def _failed(self, why: str) -> None:
        self.given_up = why

    def finish(self) -> int:
        return data.count_wrong(self.got, self.inputs.reduced, self.start, self.device.progress)

    def close(self) -> None:
        self.inside.leave()
        self.out.leave()
        super().close()


def _length(span: Span) -> int:
    return span.stop - span.start
