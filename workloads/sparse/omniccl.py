"""OmNICCL over reliable queue pairs: hosts write into the Rx spots of SmartNICs' compute complexes, which add up.

The plan's `ranks` are the workers, its `helpers` the complexes that aggregate; windows are dealt out to these in turn.
A message is one RDMA write with immediate (the window): a header with the number of blocks, their indices, the blocks.
Sums stay in the Tx spot that they were added up in, moved together, until the NIC is done with them on every
connection; what comes in for the next window of that spot waits in its Rx spot.
"""

from __future__ import annotations

from collections import deque
from struct import Struct
from typing import Any

from numpy.typing import NDArray

from workloads.parts.part import Part
from workloads.parts.receives import MOST_RECEIVES, Receives
from workloads.sparse.inputs import SparseInputs
from workloads.sparse.sizes import header_bytes
from workloads.sparse.spots import Aggregator, WindowPart, Windows, Worker
from workloads.verbs import FabricError, Peer, Region, wire
from workloads.verbs.wire import Record

_KEY = Struct("<I")
_COUNT = Struct("<II")  # blocks, 0


class AllReduce(Part):
    """One endpoint's part: a worker on a host, or an aggregator on a compute complex."""

    def setup(self) -> None:
        self.op = self.op or "sum"
        self.options = options = {**self.entry.defaults, **self.context.options}
        # The step's own largest vector, not the context's: all that take part must agree on where spots lie.
        largest = -(-max(options["sizes"]) // (options["block"] * self.dtype.itemsize))
        self.spot: int = min(options["spot"], max(largest, 1))  # blocks that there is room for
        helpers = options["helpers"]
        self.workers, self.aggregators = list(self.ranks[: -len(helpers)]), list(helpers)
        me = self.device.rank
        self.aggregates = me in self.aggregators
        self.index = (self.aggregators if self.aggregates else self.workers).index(me)
        sparsity = {key: options[key] for key in ("block", "density", "overlap")}
        self.inputs = SparseInputs(self.context.seed, len(self.workers), self.dtype.name, self.op, **sparsity)
        self.most_header = header_bytes(self.spot)
        self.spot_bytes = self._spot_bytes(self.spot)
        self._allocate()
        self._connect()
        self.moved: dict[str, int] = {}

    def _spot_bytes(self, blocks: int) -> int:
        elements: int = blocks * self.options["block"]
        return header_bytes(blocks) + -(-elements * self.dtype.itemsize // 8) * 8

    @property
    def working_set_bytes(self) -> int:
        """What an aggregator touches: two Rx spots of each worker, and two Tx spots."""
        return 2 * (len(self.workers) + 1) * self._spot_bytes(self.windows.spot)

    # Memory and connections

    def _allocate(self) -> None:
        if self.aggregates:
            self.incoming = self._region("rx spots", 2 * len(self.workers))
            self.outgoing = self._region("tx spots", 2)
        else:
            self.vector = self.context.region("vector")
            self.incoming = self._region("sums", 2 * len(self.aggregators))
            self.outgoing = self._region("contributions", 2 * len(self.aggregators))

    def _region(self, name: str, spots: int) -> Region:
        nbytes = spots * self.spot_bytes
        return self.context.region(f"sparse {name} {nbytes}", nbytes)

    def _connect(self) -> None:
        """Worker w's connections have tag + w."""
        key = _KEY.pack(self.incoming.key)
        others = self.workers if self.aggregates else self.aggregators
        peers = [Peer(r, self.tag + (i if self.aggregates else self.index), key) for i, r in enumerate(others)]
        self.pairs = self.device.connect(peers)
        self.others = {pair.number: others.index(pair.peer) for pair in self.pairs}
        self.keys = [int(_KEY.unpack(pair.private)[0]) for pair in self.pairs]
        depth = max(1, MOST_RECEIVES // len(self.pairs))
        self.receives = [Receives(pair, self.incoming, depth) for pair in self.pairs]

    # One iteration

    def prepare(self, size_bytes: int, variant: int) -> None:
        self.variant = variant
        count = size_bytes // self.dtype.itemsize
        self.windows = Windows.of_vector(count, self.options["block"], self.spot, len(self.aggregators))
        self.moved = {}
        if self.aggregates:
            shape = self.windows, self.index, len(self.workers), self.dtype
            self.aggregator = Aggregator(*shape, self._tx_spot, finish=self.inputs.finish)
            self.unsent = [0, 0]  # results under way from each Tx spot
            self.waiting: tuple[deque[tuple[int, WindowPart]], deque[tuple[int, WindowPart]]] = (deque(), deque())
        else:
            self.moved = {"tx_bytes": 0, "rx_bytes": 0}
            self.mine = self.vector.view(self.dtype.name, 0, count)
            self.inputs.fill(self.mine, self.index, variant, self.device.progress)
            self.worker = Worker(self.windows, self.mine, self._contribution_at)
        for other, receives in enumerate(self.receives):
            receives.expect(len(self.windows.of(self.index if self.aggregates else other)))

    def run(self) -> None:
        if not self.aggregates:
            for window in self.worker.first():
                self._contribute(window)
        done = 0
        while not self._done():
            for record in self.device.wait():
                self._take(record)
            done += 1
            self.context.tick(done, done + 1)

    def _done(self) -> bool:
        return self.aggregator.done and not any(self.unsent) if self.aggregates else self.worker.done

    def finish(self) -> int:
        return 0 if self.aggregates else self.inputs.count_wrong(self.mine, self.variant, self.device.progress)

    def _take(self, record: Record) -> None:
        if record.kind == wire.SENT:
            half = record.wr_id
            self.unsent[half] -= 1
            waiting = self.waiting[half]
            while waiting and not self.unsent[half]:
                self._add(*waiting.popleft())
            return
        window = record.imm
        if record.kind != wire.RECEIVED_IMM or window >= self.windows.number:
            raise FabricError(f"a record of kind {record.kind} with immediate {window}")
        other = self.others[record.qp]
        self.receives[other].took()
        part = self._read(self._spot(other, window), record.nbytes, window)
        if not self.aggregates:
            self._result(part, record.nbytes)
        elif self.unsent[self.windows.half(window)]:
            self.waiting[self.windows.half(window)].append((other, part))
        else:
            self._add(other, part)

    def _spot(self, other: int, window: int) -> int:
        """Where a message lies, at both ends: two spots for each worker or aggregator."""
        return (2 * other + self.windows.half(window)) * self.spot_bytes

    def _read(self, at: int, nbytes: int, window: int) -> WindowPart:
        count, _ = _COUNT.unpack_from(self.incoming.view("uint8", at, _COUNT.size).data)
        header = header_bytes(count)
        elements, odd = divmod(nbytes - header, self.dtype.itemsize)
        if count > self.windows.spot or elements < 0 or odd:
            raise FabricError(f"window {window}: {count} blocks in {nbytes} bytes")
        indices = self.incoming.view("uint32", at + _COUNT.size, count)
        return WindowPart(window, indices, self.incoming.view(self.dtype.name, at + header, elements))

    def _write(self, at: int, part: WindowPart) -> int:
        """Puts a header in front of data that begins at `at` + its length.  Returns the message's bytes."""
        count, header = len(part.indices), header_bytes(len(part.indices))
        _COUNT.pack_into(self.outgoing.view("uint8", at, _COUNT.size).data, 0, count, 0)
        self.outgoing.view("uint32", at + _COUNT.size, count)[:] = part.indices
        return header + len(part.data) * self.dtype.itemsize

    # As a worker

    def _contribution_at(self, window: int, blocks: int, elements: int) -> NDArray[Any]:
        at = self._spot(self.windows.aggregator(window), window) + header_bytes(blocks)
        return self.outgoing.view(self.dtype.name, at, elements)

    def _contribute(self, window: int) -> None:
        part = self.worker.contribution(window)
        to = self.windows.aggregator(window)
        at = self._spot(to, window)
        nbytes = self._write(at, part)
        self.moved["tx_bytes"] += nbytes
        target = self._spot(self.index, window)
        self.pairs[to].write(self.outgoing, at, nbytes, self.keys[to], target, imm=window, signaled=False)

    def _result(self, part: WindowPart, nbytes: int) -> None:
        self.moved["rx_bytes"] += nbytes
        after = self.worker.result(part)
        if after is not None:
            self._contribute(after)

    # As an aggregator

    def _tx_spot(self, half: int) -> NDArray[Any]:
        elements = self.windows.spot * self.windows.block
        return self.outgoing.view(self.dtype.name, half * self.spot_bytes + self.most_header, elements)

    def _add(self, worker: int, part: WindowPart) -> None:
        before = self.aggregator.added_elements
        sums = self.aggregator.contribution(worker, part)
        added = (self.aggregator.added_elements - before) * self.dtype.itemsize
        self.device.spend(self.context.costs.reduce_ns(added, self.working_set_bytes))
        if sums is not None:
            self._send(sums)

    def _send(self, sums: WindowPart) -> None:
        half = self.windows.half(sums.window)
        at = half * self.spot_bytes + self.most_header - header_bytes(len(sums.indices))
        nbytes = self._write(at, sums)
        for pair, key in zip(self.pairs, self.keys, strict=True):
            target = self._spot(self.index, sums.window)
            pair.write(self.outgoing, at, nbytes, key, target, imm=sums.window, wr_id=half)
        self.unsent[half] = len(self.pairs)
