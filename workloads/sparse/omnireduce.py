"""OmniReduce over reliable queue pairs: who aggregates, where messages lie, what is posted.

The group's ranks are workers, and every one of them also aggregates a shard of the slots; with `aggregators: K` the
last K ranks only aggregate and the others are the workers (docs/sparse.md says why that is so).  Worker and aggregator
of one rank hand each other messages in memory.

A message is one RDMA write with immediate (the slot).  A worker's goes to its place for that slot at the aggregator: it
sends the next one there only after a result, and so after this one was added up.  A result goes behind the slot's
results before it in the worker's memory, where there is room for all of them, so no worker has to keep pace.  Sums are
written over only when the NIC is done with the result that was sent from there, on every connection; until then what
comes in for that slot waits in its place.  Nothing is lost on a reliable connection, so that there are no timers here
(protocol.py has them for a transport that loses).
"""

from __future__ import annotations

from collections import deque
from struct import Struct
from typing import Any

import numpy as np
from numpy.typing import NDArray

from workloads.parts.part import Part
from workloads.parts.receives import MOST_RECEIVES, Receives
from workloads.sparse.inputs import SparseInputs
from workloads.sparse.layout import Layout
from workloads.sparse.protocol import Aggregator, Message, Worker
from workloads.verbs import FabricError, Peer, Region, wire
from workloads.verbs.wire import Record

_KEY = Struct("<I")


class Messages:
    """Messages of one layout in registered memory: a header, padded to 8 bytes, and the blocks."""

    def __init__(self, layout: Layout, dtype: np.dtype[Any]) -> None:
        self.layout = layout
        self.dtype = dtype
        self.header_bytes = -(-layout.header.size // 8) * 8
        self.most_bytes = self.header_bytes + -(-layout.message_elements * dtype.itemsize // 8) * 8

    def data(self, region: Region, offset: int, elements: int) -> NDArray[Any]:
        """Where the blocks of the message at `offset` belong."""
        return region.view(self.dtype.name, offset + self.header_bytes, elements)

    def write(self, region: Region, offset: int, message: Message) -> int:
        """Writes a message's header in front of its data, which is there already.  Returns its bytes."""
        header = region.view("uint8", offset, self.header_bytes).data
        self.layout.header.pack_into(header, 0, message.round, message.mask, *message.nexts)
        return self.header_bytes + len(message.data) * self.dtype.itemsize

    def read(self, region: Region, offset: int, nbytes: int, slot: int) -> Message:
        elements, odd = divmod(nbytes - self.header_bytes, self.dtype.itemsize)
        if elements < 0 or odd or elements > self.layout.message_elements:
            raise FabricError(f"slot {slot}: a message of {nbytes} bytes")
        header = region.view("uint8", offset, self.header_bytes).data
        number, mask, *nexts = self.layout.header.unpack_from(header)
        return Message(slot, number, mask, nexts, self.data(region, offset, elements))


class AllReduce(Part):
    """One rank's part: a worker, an aggregator, or both."""

    def setup(self) -> None:
        self.op = self.op or "sum"
        self.options = options = {**self.entry.defaults, **self.context.options}
        dedicated = options.get("aggregators") or 0
        self.workers = list(self.ranks[: len(self.ranks) - dedicated])
        self.aggregators = list(self.ranks[len(self.workers) :]) or self.workers
        me = self.device.rank
        self.worker_index = self.workers.index(me) if me in self.workers else None
        self.aggregator_index = self.aggregators.index(me) if me in self.aggregators else None
        sparsity = {key: options[key] for key in ("block", "density", "overlap")}
        self.inputs = SparseInputs(self.context.seed, len(self.workers), self.dtype.name, self.op, **sparsity)
        # The step's own largest vector, not the context's: all that take part must agree on where messages lie.
        self._allocate(self._layout(max(options["sizes"])))
        self._connect()
        self.moved: dict[str, int] = {}

    def _layout(self, size_bytes: int) -> Layout:
        count = size_bytes // self.dtype.itemsize
        return Layout.of(count, self.options["block"], self.options["fusion"], self.options["slots"])

    # Memory and connections

    def _allocate(self, largest: Layout) -> None:
        """Room for the largest vector; that is enough for smaller ones, which have no more slots or messages."""
        each = Messages(largest, self.dtype).most_bytes
        self.shard = -(-largest.slots // len(self.aggregators))  # slots of an aggregator, at most
        messages = -(-largest.blocks // largest.fusion) + largest.slots
        if self.worker_index is not None:
            self.vector = self.context.region("vector")
            self.outgoing = self._region("contributions", largest.slots * each)
            self.results = self._region("results", messages * each)
        if self.aggregator_index is not None:
            self.incoming = self._region("incoming", len(self.workers) * self.shard * each)
            self.sums = self._region("sums", 2 * self.shard * each)

    def _region(self, name: str, nbytes: int) -> Region:
        return self.context.region(f"sparse {name} {nbytes}", nbytes)

    def _connect(self) -> None:
        """Worker w's connection to an aggregator has tag + w: two ranks share two, each with one worker."""
        peers: list[Peer] = []
        if self.worker_index is not None:
            key = _KEY.pack(self.results.key)
            peers += [Peer(a, self.tag + self.worker_index, key) for a in self.aggregators if a != self.device.rank]
        as_worker = len(peers)
        if self.aggregator_index is not None:
            key = _KEY.pack(self.incoming.key)
            peers += [Peer(w, self.tag + i, key) for i, w in enumerate(self.workers) if w != self.device.rank]
        pairs = self.device.connect(peers)
        depth = max(1, MOST_RECEIVES // len(pairs))
        self.to_aggregator = {self.aggregators.index(p.peer): p for p in pairs[:as_worker]}
        self.to_worker = {self.workers.index(p.peer): p for p in pairs[as_worker:]}
        self.workers_by_pair = {p.number: w for w, p in self.to_worker.items()}
        self.receives = {
            p.number: Receives(p, self.results if n < as_worker else self.incoming, depth) for n, p in enumerate(pairs)
        }
        self.keys = {p.number: int(_KEY.unpack(p.private)[0]) for p in pairs}

    # One iteration

    def prepare(self, size_bytes: int, variant: int) -> None:
        self.variant = variant
        self.layout = layout = self._layout(size_bytes)
        self.messages = Messages(layout, self.dtype)
        self.local: deque[tuple[str, Message]] = deque()
        self.moved = {}
        each = self.messages.most_bytes
        if self.worker_index is not None:
            self.moved = {"tx_bytes": 0, "rx_bytes": 0}
            self.mine = self.vector.view(self.dtype.name, 0, size_bytes // self.dtype.itemsize)
            self.inputs.fill(self.mine, self.worker_index, variant, self.device.progress)
            self.worker = Worker(layout, self.mine, lambda slot, n: self.messages.data(self.outgoing, slot * each, n))
            self.result_at = [slot * layout.rows * each for slot in range(layout.slots)]
        if self.aggregator_index is not None:
            slots = range(self.aggregator_index, layout.slots, len(self.aggregators))
            self.aggregator = Aggregator(
                layout, len(self.workers), slots, self.dtype,
                lambda slot, which: self.messages.data(
                    self.sums, self._sums_at(slot, which), layout.message_elements
                ),
                finish=self.inputs.finish,
            )  # fmt: skip
            self.target_at = {slot: slot * layout.rows * each for slot in slots}
            self.unsent = {slot: [0, 0] for slot in slots}
            self.waiting: dict[int, deque[tuple[int, Message]]] = {slot: deque() for slot in slots}
        for number, receives in self.receives.items():
            shard = self.aggregator_index if number in self.workers_by_pair else self._aggregator_of(number)
            receives.expect(len(range(shard or 0, layout.slots, len(self.aggregators))) * layout.rows)

    def _aggregator_of(self, number: int) -> int:
        return next(a for a, p in self.to_aggregator.items() if p.number == number)

    def run(self) -> None:
        if self.worker_index is not None:
            for slot in range(self.layout.slots):
                self._contribute(self.worker.begin(slot))
        self._settle()
        done = 0
        while not self._done():
            for record in self.device.wait():
                self._take(record)
                self._settle()
            done += 1
            self.context.tick(done, done + 1)

    def _done(self) -> bool:
        if self.worker_index is not None and not self.worker.done:
            return False
        if self.aggregator_index is None:
            return True
        return self.aggregator.done and not any(map(any, self.unsent.values()))

    def finish(self) -> int:
        if self.worker_index is None:
            return 0
        return self.inputs.count_wrong(self.mine, self.variant, self.device.progress)

    # What comes in

    def _take(self, record: Record) -> None:
        if record.kind == wire.SENT:
            slot, which = divmod(record.wr_id, 2)
            self.unsent[slot][which] -= 1
            if not self.unsent[slot][which]:
                self._resume(slot)
            return
        if record.kind != wire.RECEIVED_IMM or record.imm >= self.layout.slots:
            raise FabricError(f"a record of kind {record.kind} with immediate {record.imm}")
        self.receives[record.qp].took()
        slot, nbytes = record.imm, record.nbytes
        worker = self.workers_by_pair.get(record.qp)
        if worker is not None:
            at = self._incoming_at(worker, slot)
            self._contributed(worker, self.messages.read(self.incoming, at, nbytes, slot))
        else:
            self._result(self.messages.read(self.results, self.result_at[slot], nbytes, slot), nbytes)
            self.result_at[slot] += -(-nbytes // 8) * 8

    def _settle(self) -> None:
        """What this rank's worker and aggregator have for each other."""
        while self.local:
            to, message = self.local.popleft()
            if to == "aggregator":
                assert self.worker_index is not None
                self._contributed(self.worker_index, message)
            else:
                self._result(message, self.messages.header_bytes + len(message.data) * self.dtype.itemsize)

    # As a worker

    def _contribute(self, message: Message) -> None:
        slot = message.slot
        at = slot * self.messages.most_bytes
        nbytes = self.messages.write(self.outgoing, at, message)
        self.moved["tx_bytes"] += nbytes
        pair = self.to_aggregator.get(slot % len(self.aggregators))
        if pair is None:
            self.local.append(("aggregator", message))
            return
        assert self.worker_index is not None
        target = self._incoming_at(self.worker_index, slot)
        pair.write(self.outgoing, at, nbytes, self.keys[pair.number], target, imm=slot, signaled=False)

    def _result(self, message: Message, nbytes: int) -> None:
        self.moved["rx_bytes"] += nbytes
        answer = self.worker.result(message)
        if answer is not None:
            self._contribute(answer)

    # As an aggregator

    def _incoming_at(self, worker: int, slot: int) -> int:
        return (worker * self.shard + slot // len(self.aggregators)) * self.messages.most_bytes

    def _sums_at(self, slot: int, which: int) -> int:
        return (2 * (slot // len(self.aggregators)) + which) * self.messages.most_bytes

    def _contributed(self, worker: int, message: Message) -> None:
        """Adds up a worker's message, or lets it wait until the sums' last result has left."""
        slot = message.slot
        if self.waiting[slot] or self.unsent[slot][self.aggregator.round(slot) & 1]:
            self.waiting[slot].append((worker, message))
        else:
            self._add(worker, message)

    def _resume(self, slot: int) -> None:
        waiting = self.waiting[slot]
        while waiting and not self.unsent[slot][self.aggregator.round(slot) & 1]:
            self._add(*waiting.popleft())

    def _add(self, worker: int, message: Message) -> None:
        before = self.aggregator.added_elements
        outcome = self.aggregator.contribution(worker, message)
        added = self.aggregator.added_elements - before
        self.device.spend(self.context.costs.reduce_ns(added * self.dtype.itemsize))
        if outcome is not None:
            self._send(outcome[0])

    def _send(self, result: Message) -> None:
        slot, which = result.slot, result.round & 1
        at = self._sums_at(slot, which)
        nbytes = self.messages.write(self.sums, at, result)
        for pair in self.to_worker.values():
            key, target = self.keys[pair.number], self.target_at[slot]
            pair.write(self.sums, at, nbytes, key, target, imm=slot, wr_id=2 * slot + which)
        self.unsent[slot][which] = len(self.to_worker)
        self.target_at[slot] += -(-nbytes // 8) * 8
        if self.worker_index is not None:
            self.local.append(("worker", result))
