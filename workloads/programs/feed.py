"""Preprocessed data goes from CPU servers to accelerators, by the servers' hosts or by their NICs (Conspirator).

The last ranks of a group are accelerators, as many as `compute` has times; the others preprocess the step's size, batch
by batch, and each batch goes to the accelerator that a schedule (share.py) has for it.  An accelerator has `buffers`
places for each server and gives one back when it is through with its batch.

By hosts, the core that preprocesses also moves: it copies a batch into memory that the NIC may read, posts, and takes
care of completions and places.  By NICs it hands the batch over to its complex, which does all of that.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from workloads.parts.part import Part
from workloads.programs.costs import batch_ns, moving_ns
from workloads.programs.mailbox import Mailbox, mailboxes
from workloads.programs.message import drawn, wrong_bytes
from workloads.programs.share import shared
from workloads.verbs import wire
from workloads.verbs.wire import Record

_PLACE = b"\1" * 8
_AHEAD = 4  # batches that a complex has room for, beside those that are on their way


def preprocessed(seed: int, variant: int, batch: int, nbytes: int) -> bytes:
    """A batch: raw bytes, of which each is scaled and shifted."""
    raw = drawn((seed, variant, batch), -(-nbytes // 8)).view(np.uint8)[:nbytes]
    return (raw * np.uint8(3) + np.uint8(7)).tobytes()


@dataclass(frozen=True)
class Job:
    """Who takes part in a step, and which batch goes where."""

    servers: tuple[int, ...]
    accelerators: tuple[int, ...]
    options: Mapping[str, Any]
    by_hosts: bool

    @classmethod
    def of(cls, ranks: Sequence[int], options: Mapping[str, Any], *, by_hosts: bool) -> Job:
        n = len(options["compute"])
        return cls(tuple(ranks[:-n]), tuple(ranks[-n:]), options, by_hosts)

    def shared(self, size_bytes: int) -> list[int]:
        every_ns = batch_ns(self.options, self.options["post"], moves=self.by_hosts) / len(self.servers)
        return shared(self.options["schedule"], self.options["compute"], every_ns, size_bytes // self.options["batch"])


@dataclass
class _Sender:
    """Batches that wait for a place at an accelerator, in order."""

    box: Mailbox
    places: list[int] = field(default_factory=list)
    waiting: deque[bytes] = field(default_factory=deque)

    def flush(self) -> None:
        while self.waiting and self.places:
            self.box.send(self.places.pop(), self.waiting.popleft())


class Feed(Part):
    """One end: a CPU server's host, its complex, or an accelerator."""

    def setup(self) -> None:
        self.options, helpers = self.context.options["feed"], list(self.context.options.get("helpers", ()))
        self.job = Job.of(self.ranks[: len(self.ranks) - len(helpers)], self.options, by_hosts=not helpers)
        self.movers = helpers or list(self.job.servers)  # who sends to accelerators, one for each server
        me, n = self.device.rank, len(self.job.servers)
        self.accelerator = self.job.accelerators.index(me) if me in self.job.accelerators else None
        self.server = next((k for k in range(n) if me in (self.job.servers[k], self.movers[k])), 0)
        self.moves, self.prepares = me in self.movers, me in self.job.servers
        self.boxes: dict[int, Mailbox] = {}
        self.inner = self._inner(helpers)
        self.outer = self._outer()

    def _mailboxes(self, peers: Sequence[tuple[int, int]], places: int, name: str) -> list[Mailbox]:
        ends = [(end, self.tag + tag) for end, tag in peers]
        boxes = mailboxes(self.context, ends, self.options["batch"], places, name) if ends else {}
        self.boxes |= boxes
        return list(boxes.values())

    def _inner(self, helpers: Sequence[int]) -> list[Mailbox]:
        """Between a server's host and its complex."""
        if not helpers or self.accelerator is not None:
            return []
        other = (self.job.servers if self.moves else self.movers)[self.server]
        return self._mailboxes([(other, 0)], _AHEAD, "inner")

    def _outer(self) -> list[Mailbox]:
        """Between whoever moves and accelerators: the one has them by accelerator, the other by server."""
        if self.accelerator is not None:
            peers = [(mover, self.accelerator) for mover in self.movers]
        else:
            peers = [(a, k) for k, a in enumerate(self.job.accelerators)] if self.moves else []
        return self._mailboxes(peers, self.options["buffers"], "outer")

    def prepare(self, size_bytes: int, variant: int) -> None:
        self.variant, self.wrong, self.moved = variant, 0, {"tx_bytes": 0, "rx_bytes": 0}
        of_all, n = self.job.shared(size_bytes), len(self.job.servers)
        self.mine = [(b, a) for b, a in enumerate(of_all) if b % n == self.server]
        if self.accelerator is not None:
            mine = [b for b, a in enumerate(of_all) if a == self.accelerator]
            self.coming = [deque(b for b in mine if b % n == k) for k in range(n)]
            expected = [len(batches) for batches in self.coming]
        else:
            expected = [sum(a == k for _, a in self.mine) for k in range(len(self.outer))]
        self.left = sum(expected) * (1 if self.accelerator is None else 2)  # it is also to be through with each
        for box, count in zip(self.outer, expected, strict=True):
            box.expect(count)
        for box in self.inner:
            box.expect(len(self.mine))
            self.left += len(self.mine)
        self.handed = 0
        free = list(reversed(range(self.options["buffers"])))
        self.out = [_Sender(box, list(free)) for box in self.outer] if self.moves else []
        self.into = _Sender(self.inner[0], list(range(_AHEAD))) if self.inner and self.prepares else None

    def run(self) -> None:
        of = self.left
        if self.prepares:
            for batch, accelerator in self.mine:
                self.device.spend(self.options["preprocess"])
                for record in self.device.poll():
                    self._take(record)
                self._pass(preprocessed(self.context.seed, self.variant, batch, self.options["batch"]), accelerator)
                self.device.progress()
        while self.left:
            for record in self.device.wait():
                self._take(record)
            self.device.progress()
            self.context.tick(of - self.left, of)

    def finish(self) -> int:
        return self.wrong

    def _pass(self, data: bytes, accelerator: int) -> None:
        """A batch of ours, to its accelerator, or to our complex, which knows where it goes."""
        self.moved = {**self.moved, "tx_bytes": self.moved["tx_bytes"] + len(data)}
        if self.into is not None:
            sender = self.into
        else:
            sender = self.out[accelerator]
            self.device.spend(moving_ns(self.options))
        sender.waiting.append(data)
        sender.flush()

    def _take(self, record: Record) -> None:
        self.left -= 1
        if record.kind == wire.COMPUTED:  # by an accelerator: its place is free
            self.outer[record.wr_id // self.options["buffers"]].send(record.wr_id % self.options["buffers"], _PLACE)
            return
        box = self.boxes[record.qp]
        if self.accelerator is not None:
            self._received(self.outer.index(box), box, record)
        elif box in self.inner and self.moves:
            self._handed_over(box, record)
        else:
            sender = self.out[self.outer.index(box)] if box in self.outer else self.into
            assert sender is not None
            sender.places.append(record.imm)
            sender.flush()

    def _received(self, server: int, box: Mailbox, record: Record) -> None:
        data, batch = box.read(record), self.coming[server].popleft()
        self.moved = {**self.moved, "rx_bytes": self.moved["rx_bytes"] + len(data)}
        want = preprocessed(self.context.seed, self.variant, batch, self.options["batch"])
        self.wrong += wrong_bytes(data, want)
        number = server * self.options["buffers"] + record.imm
        self.device.compute(self.options["compute"][self.accelerator or 0], wr_id=number)

    def _handed_over(self, box: Mailbox, record: Record) -> None:
        """At the complex: batches come in the order in which they were made.  Its place there is free at once."""
        _, accelerator = self.mine[self.handed]
        self.handed += 1
        sender = self.out[accelerator]
        sender.waiting.append(box.read(record))
        sender.flush()
        box.send(record.imm, _PLACE)
