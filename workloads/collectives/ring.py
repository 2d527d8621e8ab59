"""Ring all-reduce, reduce-scatter and all-gather, one message a hop.

The vector is cut into one chunk per rank.  On a reducing hop a rank's chunk goes into its right neighbour's staging
buffer, and the neighbour adds it to its own vector; on a gathering hop it goes straight into the neighbour's vector.
The message is an RDMA write with immediate (the hop's number), its receive posted before the collective begins.

A write never lands in memory still in use, without credits.  Staging has a place for every chunk, and each chunk
arrives there once.  A gathered chunk has been through the rank it now comes back to: what it overwrites was sent, and
had arrived at the right neighbour, before its final value existed.  Between iterations all ranks meet in a sync.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from struct import Struct
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from workloads import data, wire
from workloads.context import Context
from workloads.registry import Collective
from workloads.verbs import FabricError, Peer

SLICE_BYTES = 4 << 20  # of host arithmetic between two signs of life

_KEYS = Struct("<II")  # of vector and staging
_REDUCE = {"sum": np.add, "avg": np.add, "min": np.minimum, "max": np.maximum, "prod": np.multiply}


class Hop(NamedTuple):
    """One step of one rank: chunk `send` goes right, chunk `receive` comes from the left, to be reduced or kept."""

    send: int
    receive: int
    reduce: bool


def reducing(ranks: int, index: int) -> list[Hop]:
    """The hops after which rank `index` holds the reduced chunk `index`."""
    return [Hop((index - k - 1) % ranks, (index - k - 2) % ranks, True) for k in range(ranks - 1)]


def gathering(ranks: int, index: int) -> list[Hop]:
    """The hops after which rank `index`, which holds chunk `index`, holds all."""
    return [Hop((index - k) % ranks, (index - k - 1) % ranks, False) for k in range(ranks - 1)]


def chunks(count: int, ranks: int) -> list[slice]:
    """`count` elements in `ranks` parts, longest first; lengths differ by one at most, and may be 0."""
    each, more = divmod(count, ranks)
    edges = [each * i + min(i, more) for i in range(ranks + 1)]
    return [slice(a, b) for a, b in pairwise(edges)]


class _Ring:
    """A rank's place in the ring over a group: its two queue pairs, its vector and its staging buffer."""

    def __init__(
        self, context: Context, entry: Collective, ranks: Sequence[int], dtype: str, op: str | None, tag: int
    ) -> None:
        self.context = context
        self.device = context.device
        self.n = len(ranks)
        self.index = index = list(ranks).index(self.device.rank)
        self.dtype = np.dtype(dtype)
        self.op = op if entry.ops else None
        self.inputs = data.Inputs(context.seed, self.n, dtype, self.op)
        self.vector = context.region("vector")
        self.staging = context.region("staging")
        keys = _KEYS.pack(self.vector.key, self.staging.key)
        # The edge from rank i of the group to rank i + 1 has tag + i: two ranks share two edges, each with its own.
        left = (index - 1) % self.n
        to_right = Peer(ranks[(index + 1) % self.n], tag + index, keys)
        to_left = Peer(ranks[left], tag + left, keys)
        self.right, self.left = self.device.connect([to_right, to_left])
        self.right_vector, self.right_staging = _KEYS.unpack(self.right.private)
        self.hops = self.schedule(self.n, index)
        self.input = self.inputs.of(index)

    @staticmethod
    def schedule(ranks: int, index: int) -> list[Hop]:
        """The hops of rank `index`."""
        raise NotImplementedError

    def prepare(self, size_bytes: int, variant: int) -> None:
        count = size_bytes // self.dtype.itemsize
        self.chunks = chunks(count, self.n)
        self.mine = self.vector.view(self.dtype.name, 0, count)
        self.staged = self.staging.view(self.dtype.name, 0, count)
        self.start = variant
        self.received = 0
        self.sent = False
        self._fill()
        for hop in range(len(self.hops)):
            self.left.recv(self.vector, wr_id=hop)

    def run(self) -> None:
        for k, hop in enumerate(self.hops):
            self._send(k, hop)
            while self.received <= k:
                self._wait()
            if hop.reduce:
                self._reduce(hop.receive)
            self.context.tick(k + 1, len(self.hops))
        while not self.sent:  # the last message only is signaled: all before it on the same connection are done, too
            self._wait()

    def _send(self, k: int, hop: Hop) -> None:
        chunk = self.chunks[hop.send]
        offset = chunk.start * self.dtype.itemsize
        length = (chunk.stop - chunk.start) * self.dtype.itemsize
        rkey = self.right_staging if hop.reduce else self.right_vector
        self.right.write(self.vector, offset, length, rkey, offset, imm=k, wr_id=k, signaled=k == len(self.hops) - 1)

    def _wait(self) -> None:
        for record in self.device.wait():
            if record.kind == wire.SENT:
                self.sent = True
            elif record.kind == wire.RECEIVED_IMM and record.imm == self.received:
                self.received += 1
            else:
                raise FabricError(f"hop {self.received}: a record of kind {record.kind} with immediate {record.imm}")

    def _reduce(self, index: int) -> None:
        """Adds (or whatever `op` says) the staged chunk `index` to ours; the rank that completes it also divides."""
        chunk = self.chunks[index]
        self.device.spend(self.context.costs.reduce_ns((chunk.stop - chunk.start) * self.dtype.itemsize))
        reduce = _REDUCE[self.op or ""]
        step = SLICE_BYTES // self.dtype.itemsize
        for at in range(chunk.start, chunk.stop, step):
            part = self.mine[at : min(at + step, chunk.stop)]
            reduce(part, self.staged[at : min(at + step, chunk.stop)], out=part)
            if self.op == "avg" and index == self.index:
                _divide(part, self.n)
            self.device.progress()

    def _fill(self) -> None:
        data.fill(self.mine, self.input, self.start, self.device.progress)

    def _wrong(self, chunk: slice, period: NDArray[Any]) -> int:
        return data.count_wrong(self.mine[chunk], period, self.start + chunk.start, self.device.progress)


class AllReduce(_Ring):
    """Reduce-scatter, then all-gather: 2 (n - 1) hops."""

    schedule = staticmethod(lambda ranks, index: reducing(ranks, index) + gathering(ranks, index))

    def finish(self) -> int:
        return self._wrong(slice(0, len(self.mine)), self.inputs.reduced)


class ReduceScatter(_Ring):
    """n - 1 reducing hops; rank i of the group ends with chunk i in its place in the vector."""

    schedule = staticmethod(reducing)

    def finish(self) -> int:
        return self._wrong(self.chunks[self.index], self.inputs.reduced)


class AllGather(_Ring):
    """n - 1 gathering hops; rank i of the group starts with chunk i in its place in the vector."""

    schedule = staticmethod(gathering)

    def _fill(self) -> None:
        """Only our chunk is input; the others hold what would be wrong there."""
        data.spoil(self.mine, self.device.progress)
        own = self.chunks[self.index]
        data.fill(self.mine[own], self.input, self.start + own.start, self.device.progress)

    def finish(self) -> int:
        return sum(self._wrong(chunk, self.inputs.of(rank)) for rank, chunk in enumerate(self.chunks))


def _divide(part: NDArray[Any], ranks: int) -> None:
    """In place; integers are truncated towards zero."""
    if part.dtype.kind == "i":
        part -= np.fmod(part, ranks)
        part //= ranks
    else:
        part /= ranks
