"""Broadcast and all-gather by multicast datagrams that the switches copy (docs/multicast.md).

Every byte leaves its sender once; with `trees` chunks take several in turn.  What a rank's NIC does is
hardware/fabricd/offload/multicast/: it places what comes, keeps a bit per chunk, and says after a while what is
missing.  Here: nobody sends before all are ready (a dissemination barrier), and whoever lacks something gets it from
its left neighbour (repair.py).  If the controller refuses the group, or nothing comes of what some rank sends,
everything is missing, and the same repair is a pipelined ring: the result is right, and says why it took so long.  With
the barrier the ranks agree whether all of them have a group: else nobody multicasts.  After a failure they ask for
another (offloaded.py).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Iterable, Iterator, Sequence
from enum import IntEnum
from struct import Struct
from typing import Any

import numpy as np
from numpy.typing import NDArray

from workloads.base import data
from workloads.collectives.exchange import distances
from workloads.offloads.chunking import Chunks, runs, span
from workloads.offloads.offloaded import Rejoining
from workloads.offloads.repair import RUN_CHUNKS, Repair, Run
from workloads.parts.part import Wanted
from workloads.verbs import FabricError, Peer, QueuePair, wire

_KEYS = Struct("<II")  # of vector and bitmaps
_ARM, _START = 0, 1  # requests to the NIC's group
_NO_ROOT = 2**64 - 1
_KIND_SHIFT, _VALUE = 24, (1 << 24) - 1  # of an immediate: a kind, and a chunk's number
_NEVER_ALL_LOST = 8  # chunks
_SPARE_RECEIVES = 4  # for what is no run of chunks: messages of this operation and of the next


class Immediate(IntEnum):
    """What an immediate is about."""

    READY = 1  # barrier
    LACKS = 2  # the right neighbour's bitmap of what it lacks lies in our memory
    HAS_ALL = 3  # the right neighbour lacks nothing
    CHUNKS = 4  # of a run: its first chunk


class _Multicast(Rejoining):
    """One rank's part.  `root`: whose vector it is (None: every rank has a part of it)."""

    kind = "multicast"
    root: int | None = None

    def setup(self) -> None:
        self.inputs = data.Inputs(self.context.seed, self.n, self.dtype.name, self.op)
        self.vector = self.context.region("vector")
        self.slot_bytes = (self.context.largest_bytes // self.device.mtu + self.device.ranks + 64) // 64 * 8
        # three slots: what is here; what we lack; what the right neighbour lacks
        self.bitmaps = self.context.region("multicast bitmaps", 3 * self.slot_bytes)
        self.slack_ps = round(self.context.options["cutoff"] * 1000)
        self.chains = min(self.context.options.get("chains") or self.n, self.n)
        self._connect()
        self._join()  # that it fails later is not known to all ranks, so `by_hosts` stays as it is
        self.operation = 0
        self.posted: Counter[int] = Counter()
        self.ready: Counter[int] = Counter()  # barrier messages, by queue pair
        self.unarmed: set[tuple[int, int]] = set()  # of those: queue pair and operation, where somebody has no group
        self.sent_due = 0
        self.ended: wire.Record | None = None
        self.requested: int | None = None  # chunks that the right neighbour lacks
        self.repaired: list[Run] = []  # from the left neighbour

    def _arguments(self) -> tuple[int, ...]:
        trees = self.options.get("trees") or 1
        return self.device.mtu, trees if trees > 1 else 0

    def _connect(self) -> None:
        """One to the right and one from the left for every distance; that from rank i to its right has tag + i."""
        keys = _KEYS.pack(self.vector.key, self.bitmaps.key)
        n, index, ranks, tag = self.n, self.index, self.ranks, self.tag
        peers: list[Peer] = []
        for far in distances(n):
            left = (index - far) % n
            peers += [Peer(ranks[(index + far) % n], tag + index, keys), Peer(ranks[left], tag + left, keys)]
        pairs = self.device.connect(peers)
        self.rounds = list(zip(pairs[::2], pairs[1::2], strict=True))  # to the right, from the left
        self.right, self.left = self.rounds[0]
        self.pairs = {pair.number: pair for pair in pairs}
        self.right_vector, _ = _KEYS.unpack(self.right.private)
        _, self.left_bitmaps = _KEYS.unpack(self.left.private)

    # The iteration

    def prepare(self, size_bytes: int, variant: int) -> None:
        count = size_bytes // self.dtype.itemsize
        self.start = variant
        self.mine = self.vector.view(self.dtype.name, 0, count)
        self.chunks = Chunks(size_bytes, self.dtype.itemsize, self.device.mtu, self.n if self.root is None else 1)
        data.spoil(self.mine, self.device.progress)
        if own := self._own_slice():
            data.fill(self.mine[own], self.inputs.of(self.index), self.start + own.start, self.device.progress)
        for pair in self.pairs.values():
            self._expect(pair, _SPARE_RECEIVES)

    def work(self) -> Iterator[Wanted]:
        self.operation += 1
        if self.renewal is not None:
            self.renewal.look()
            self._renewed()
        if armed := not self.given_up:
            self._arm()
        by_multicast = yield from self._barrier(armed)
        here = self._own_chunks()
        if by_multicast:
            here = yield from self._received()
        repair = Repair(self.chunks.count, here)
        received = bin(here).count("1")
        silent = self._nothing_received(repair)
        self._request_repair(repair.missing)
        while not repair.through or self.sent_due:
            if self.requested is not None:
                lacks, self.requested = self.requested, None
                self._send_runs(repair.request(lacks))
            elif self.repaired:
                self._send_runs(repair.receive(*self.repaired.pop(0)))
            else:
                yield None
            done = self.chunks.count - bin(repair.missing).count("1") - received
            self.context.tick(done, self.chunks.count - received)
        self.fallback = self.given_up or silent
        self._worked = self._worked or not self.fallback
        if self.given_up and self.group is not None and not self.by_hosts:
            self._renew()

    def _own_slice(self) -> slice | None:
        """The elements that this rank sends."""
        if self.root is not None:
            return slice(0, len(self.mine)) if self.index == self.root else None
        edges = self.chunks.edges
        return slice(edges[self.index] // self.dtype.itemsize, edges[self.index + 1] // self.dtype.itemsize)

    def _own_chunks(self) -> int:
        if self.root is None:
            return self.chunks.of_part(self.index)
        return self.chunks.of_part(0) if self.index == self.root else 0

    def _wrong(self, part: int, sender: int) -> int:
        size = self.dtype.itemsize
        first, end = self.chunks.edges[part] // size, self.chunks.edges[part + 1] // size
        period = self.inputs.of(sender)
        return data.count_wrong(self.mine[first:end], period, self.start + first, self.device.progress)

    def _nothing_received(self, repair: Repair) -> str:
        """Why no chunk has come, of more than could be lost by chance ("": some have)."""
        everything = span(0, self.chunks.count) & ~self._own_chunks()
        silent = bin(everything).count("1") >= _NEVER_ALL_LOST and repair.missing == everything
        return "no multicast has come" if silent else ""

    # Multicast

    def _arm(self) -> None:
        root = _NO_ROOT if self.root is None else self.root
        args = (self.operation, root, self.dtype.itemsize)
        self._request(self.bitmaps, self.vector, self.mine.nbytes, collective=_ARM, args=args)

    def _barrier(self, armed: bool) -> Generator[Wanted, None, bool]:
        """Nobody is through before all have come; returns whether all have armed, in which they all agree.

        What a rank posts first reaches its NIC first.
        """
        for right, left in self.rounds:
            self._notify(right, Immediate.READY, armed)
            while self.ready[left.number] < self.operation:
                yield None
            armed = armed and (left.number, self.operation) not in self.unarmed
        return armed

    def _received(self) -> Generator[Wanted, None, int]:
        """Sends our part, waits for the others', and returns the set of chunks that are here."""
        args = (self.operation, self.slack_ps, self.chains)
        request = {"collective": _START, "wr_id": self.operation, "args": args}
        self._request(self.bitmaps, self.vector, self.mine.nbytes, **request)
        while self.ended is None:
            yield None
        missing, self.ended = self.ended.nbytes, None
        return self._bitmap(0) if missing else span(0, self.chunks.count)

    # Repair

    def _request_repair(self, missing: int) -> None:
        """Tells the left neighbour what we lack."""
        if not missing:
            self._notify(self.left, Immediate.HAS_ALL)
            return
        self._expect(self.left, _SPARE_RECEIVES + 2 * len(list(runs(missing, RUN_CHUNKS))))
        nbytes, at = self.chunks.bitmap_bytes, self.slot_bytes
        self._slot(1)[:nbytes] = np.frombuffer(missing.to_bytes(nbytes, "little"), np.uint8)
        self.left.write(
            self.bitmaps, at, nbytes, self.left_bitmaps, 2 * at, imm=Immediate.LACKS << _KIND_SHIFT, signaled=False
        )

    def _send_runs(self, batch: Sequence[Run]) -> None:
        """Writes runs of chunks to the right neighbour; only the last is signaled: completions are in order."""
        for first, end in batch:
            offset = self.chunks.offset(first)
            nbytes = self.chunks.offset(end) - offset
            last, imm = end == batch[-1][1], Immediate.CHUNKS << _KIND_SHIFT | first
            self.right.write(self.vector, offset, nbytes, self.right_vector, offset, imm=imm, signaled=last)
        self.sent_due += bool(batch)

    # Messages

    def _notify(self, pair: QueuePair, kind: Immediate, value: int = 0) -> None:
        pair.write(self.vector, 0, 0, 0, 0, imm=kind << _KIND_SHIFT | value, signaled=False)

    def _expect(self, pair: QueuePair, messages: int) -> None:
        """Has at least so many receives posted."""
        for _ in range(messages - self.posted[pair.number]):
            pair.recv(self.vector)
            self.posted[pair.number] += 1

    def queue_pairs(self) -> Iterable[int]:
        return self.pairs

    def handle(self, record: wire.Record) -> None:
        if record.kind == wire.RECEIVED_IMM:
            self._immediate(record)
        elif record.kind == wire.SENT:
            self.sent_due -= 1
        else:
            super().handle(record)

    def _done(self, record: wire.Record) -> None:
        if record.wr_id != self.operation:
            raise FabricError(f"operation {self.operation}: the NIC says that {record.wr_id} has ended")
        self.ended = record

    def _failed(self, why: str) -> None:
        self.given_up = why

    def _immediate(self, record: wire.Record) -> None:
        kind, value = record.imm >> _KIND_SHIFT, record.imm & _VALUE
        self.posted[record.qp] -= 1
        if kind == Immediate.READY:
            self.ready[record.qp] += 1
            if not value:
                self.unarmed.add((record.qp, self.ready[record.qp]))
        elif kind == Immediate.LACKS:
            self.requested = self._bitmap(2)
        elif kind == Immediate.HAS_ALL:
            self.requested = 0
        elif kind == Immediate.CHUNKS:
            self._expect(self.left, self.posted[record.qp] + 1)
            self.repaired.append((value, self.chunks.end(value, record.nbytes)))
        else:
            raise FabricError(f"operation {self.operation}: an immediate of {record.imm:#x}")

    def _slot(self, number: int) -> NDArray[Any]:
        return self.bitmaps.view("uint8", number * self.slot_bytes, self.slot_bytes)

    def _bitmap(self, number: int) -> int:
        return int.from_bytes(self._slot(number)[: self.chunks.bitmap_bytes].tobytes(), "little")


class Broadcast(_Multicast):
    """Every rank ends with the first one's vector."""

    root = 0

    def finish(self) -> int:
        return self._wrong(0, 0)


class AllGather(_Multicast):
    """Rank i of the group starts with part i in its place in the vector; every rank ends with all."""

    def finish(self) -> int:
        return sum(self._wrong(part, part) for part in range(self.n))
