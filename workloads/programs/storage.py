"""Writes to a block storage through a middle tier, whose host does it all, or whose NIC keeps the payload (SmartDS).

The first rank is the middle tier, the last `servers` are storage servers, all others write: the step's size together,
in blocks, each writer `outstanding` of them at a time.  A block is compressed in the middle, written to `replicas`
storage servers, and acknowledged to its writer when all of these have acknowledged it.

By the host: messages arrive in its memory; one core handles headers, posts, and takes acknowledgements, `cores` others
compress.  With the NIC a message arrives at its complex, which splits it: the header goes to the host, whose core says
where the block goes; the payload stays, an engine compresses it, and the complex sends it and takes acknowledgements.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from workloads.parts.part import Part
from workloads.programs.block import HEADER_BYTES, MOST_GROWTH, Header, compress, servers_of, wrong_in
from workloads.programs.block import block as block_data
from workloads.programs.mailbox import Mailbox, mailboxes
from workloads.verbs import FabricError, wire
from workloads.verbs.wire import Record

_ACK = b"\1" * 8


@dataclass(frozen=True)
class Tier:
    """Who takes part in a step, and what it says."""

    middle: int
    writers: tuple[int, ...]
    servers: tuple[int, ...]
    options: Mapping[str, Any]

    @classmethod
    def of(cls, ranks: Sequence[int], options: Mapping[str, Any]) -> Tier:
        servers = options["servers"]
        return cls(ranks[0], tuple(ranks[1:-servers]), tuple(ranks[-servers:]), options)

    def blocks(self, size_bytes: int) -> int:
        return int(size_bytes // self.options["block"])

    def of_writer(self, k: int, size_bytes: int) -> int:
        """How many blocks writer k writes: block b of all is its b / writers-th, if b mod writers is k."""
        return len(range(k, self.blocks(size_bytes), len(self.writers)))

    def of_server(self, s: int, size_bytes: int) -> int:
        """How many blocks server s keeps."""
        replicas = self.options["replicas"]
        return sum(s in servers_of(b, len(self.servers), replicas) for b in range(self.blocks(size_bytes)))


@dataclass
class _Block:
    """One that the middle tier has: its writer's k, its number there, and how many servers have not acknowledged it."""

    writer: int
    number: int
    payload: bytes
    left: int


class Write(Part):
    """One end: a writer, a storage server, the middle tier's host, or the complex of its NIC."""

    def setup(self) -> None:
        self.options, helpers = self.context.options["storage"], self.context.options.get("helpers", ())
        self.tier = Tier.of(self.ranks[: len(self.ranks) - len(helpers)], self.options)
        self.busy = helpers[0] if helpers else self.tier.middle  # who has the payload
        self.of: dict[int, int] = {}  # queue pair -> messages that will come
        self.boxes: dict[int, Mailbox] = {}
        self.slots = len(self.tier.writers) * self.options["outstanding"]
        me = self.device.rank
        self.role = (
            _Writer(self) if me in self.tier.writers else _Server(self) if me in self.tier.servers
            else _Middle(self) if me == self.busy else _Headers(self)
        )  # fmt: skip

    def mailboxes(self, peers: Sequence[tuple[int, int]], places: int, name: str) -> list[Mailbox]:
        room = HEADER_BYTES + self.options["block"] + MOST_GROWTH
        boxes = mailboxes(self.context, [(end, self.tag + tag) for end, tag in peers], room, places, name)
        self.boxes |= boxes
        return list(boxes.values())

    def prepare(self, size_bytes: int, variant: int) -> None:
        self.size_bytes, self.variant, self.wrong, self.cores_ns = size_bytes, variant, 0, 0.0
        self.of = {box.pair.number: n for box, n in self.role.prepare(size_bytes)}
        for number, n in self.of.items():
            self.boxes[number].expect(n)

    def run(self) -> None:
        self.role.begin()
        of = left = sum(self.of.values())
        while left:
            for record in self.device.wait():
                if record.kind == wire.COMPUTED:
                    self.role.computed(record.wr_id)
                    continue
                if record.kind != wire.RECEIVED_IMM:
                    raise FabricError(f"a record of kind {record.kind} in a block storage")
                left -= 1
                self.role.take(self.boxes[record.qp], record)
            self.device.progress()
            self.context.tick(of - left, of)

    def finish(self) -> int:
        return self.wrong

    def data(self, writer: int, number: int) -> bytes:
        return block_data(self.context.seed, self.variant, writer, number, self.options["block"], self.options["ratio"])


class _Role:
    def __init__(self, end: Write) -> None:
        self.end, self.options, self.tier = end, end.options, end.tier

    def prepare(self, size_bytes: int) -> list[tuple[Mailbox, int]]:
        """The messages that will come, by mailbox."""
        raise NotImplementedError

    def begin(self) -> None:
        """What it does by itself."""

    def take(self, box: Mailbox, record: Record) -> None:
        raise NotImplementedError

    def computed(self, number: int) -> None:
        raise FabricError(f"a computation {number} that nobody asked for")


class _Writer(_Role):
    """A compute server."""

    def __init__(self, end: Write) -> None:
        super().__init__(end)
        self.k = self.tier.writers.index(end.device.rank)
        (self.box,) = end.mailboxes([(end.busy, self.k)], self.options["outstanding"], "writer")

    def prepare(self, size_bytes: int) -> list[tuple[Mailbox, int]]:
        self.next, self.blocks = 0, self.tier.of_writer(self.k, size_bytes)
        return [(self.box, self.blocks)]

    def begin(self) -> None:
        for place in range(min(self.options["outstanding"], self.blocks)):
            self._write(place)

    def take(self, box: Mailbox, record: Record) -> None:
        self.end.wrong += box.read(record) != _ACK
        if self.next < self.blocks:
            self._write(record.imm)

    def _write(self, place: int) -> None:
        """The next block, in the place of one that is through: they end in any order."""
        data = self.end.data(self.k, self.next)
        self.box.send(place, Header(self.k, self.next, len(data), len(data)).packed() + data)
        self.next += 1


class _Server(_Role):
    """A storage server: it keeps what it gets, and compares it with what was written."""

    def __init__(self, end: Write) -> None:
        super().__init__(end)
        self.s = self.tier.servers.index(end.device.rank)
        (self.box,) = end.mailboxes([(end.busy, len(self.tier.writers) + self.s)], end.slots, "server")

    def prepare(self, size_bytes: int) -> list[tuple[Mailbox, int]]:
        return [(self.box, self.tier.of_server(self.s, size_bytes))]

    def take(self, box: Mailbox, record: Record) -> None:
        message = box.read(record)
        header = Header.of(message)
        known = header.writer < len(self.tier.writers) and header.payload_bytes + HEADER_BYTES == len(message)
        want = self.end.data(header.writer, header.number)
        self.end.wrong += wrong_in(message[HEADER_BYTES:], want) if known else self.options["block"]
        box.send(record.imm, _ACK)


class _Middle(_Role):
    """Who has the payload: the middle tier's host, or the complex of its NIC, which asks the host about headers."""

    def __init__(self, end: Write) -> None:
        super().__init__(end)
        writers, servers = self.tier.writers, self.tier.servers
        self.split = end.busy != self.tier.middle
        of = self.options["nic" if self.split else "host"]
        self.lanes = [0.0] * of["cores"]  # until when each is busy, as queued
        self.block_ns = self.options["block"] * 8e9 / of["compress"]
        self.writers = end.mailboxes([(w, k) for k, w in enumerate(writers)], self.options["outstanding"], "writers")
        peers = [(server, len(writers) + s) for s, server in enumerate(servers)]
        self.servers = end.mailboxes(peers, end.slots, "servers")
        inner = [(self.tier.middle, len(writers) + len(servers))] if self.split else []
        self.host = end.mailboxes(inner, end.slots, "host") if self.split else []

    def prepare(self, size_bytes: int) -> list[tuple[Mailbox, int]]:
        self.blocks: dict[int, _Block] = {}  # by slot
        blocks = self.tier.blocks(size_bytes)
        return [
            *((box, self.tier.of_writer(k, size_bytes)) for k, box in enumerate(self.writers)),
            *((box, self.tier.of_server(s, size_bytes)) for s, box in enumerate(self.servers)),
            *((box, blocks) for box in self.host),
        ]

    def take(self, box: Mailbox, record: Record) -> None:
        if box in self.writers:
            self._written(self.writers.index(box), box.read(record), record.imm)
        elif box in self.servers:
            self._acknowledged(record.imm)
        else:
            self._compress(record.imm)  # the host has looked at its header

    def _written(self, writer: int, message: bytes, place: int) -> None:
        header = Header.of(message)
        slot = writer * self.options["outstanding"] + place
        self.blocks[slot] = _Block(writer, header.number, message[HEADER_BYTES:], self.options["replicas"])
        if self.split:
            self.host[0].send(slot, message[:HEADER_BYTES])
        else:
            self.end.device.spend(self.options["header"])
            self._compress(slot)

    def _compress(self, slot: int) -> None:
        """On the core, or the engine, that has least to do."""
        lane = min(range(len(self.lanes)), key=self.lanes.__getitem__)
        self.lanes[lane] = max(self.lanes[lane], self.end.device.answered_ps / 1000) + self.block_ns
        self.end.device.compute(self.block_ns, wr_id=slot, stream=lane)
        if not self.split:
            self.end.cores_ns += self.block_ns

    def computed(self, number: int) -> None:
        block = self.blocks[number]
        data = compress(block.payload)
        message = Header(block.writer, block.number, len(block.payload), len(data)).packed() + data
        of_all = block.number * len(self.tier.writers) + block.writer
        for server in servers_of(of_all, len(self.servers), self.options["replicas"]):
            self.servers[server].send(number, message)

    def _acknowledged(self, slot: int) -> None:
        block = self.blocks[slot]
        block.left -= 1
        if not block.left:
            del self.blocks[slot]
            self.writers[block.writer].send(slot % self.options["outstanding"], _ACK)


class _Headers(_Role):
    """The middle tier's host beside its NIC: it sees headers, and nothing else."""

    def __init__(self, end: Write) -> None:
        super().__init__(end)
        tag = len(self.tier.writers) + len(self.tier.servers)
        (self.box,) = end.mailboxes([(end.busy, tag)], end.slots, "complex")

    def prepare(self, size_bytes: int) -> list[tuple[Mailbox, int]]:
        return [(self.box, self.tier.blocks(size_bytes))]

    def take(self, box: Mailbox, record: Record) -> None:
        header = Header.of(box.read(record))
        self.end.wrong += header.writer >= len(self.tier.writers) or header.block_bytes != self.options["block"]
        self.end.device.spend(self.options["header"])
        box.send(record.imm, _ACK)
