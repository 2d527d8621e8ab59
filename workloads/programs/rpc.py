"""Remote procedure calls whose messages are serialized by hosts, or by the NICs in between (RpcNIC).

The first rank of a group serves, the others call it: each makes `requests` calls, `outstanding` of them at a time, with
another message of the step's size in each, and gets one of the same shape back.

By hosts, a core serializes an object, writes it into the other host's memory, and a core there makes an object of it.
By NICs, a host copies its object into one piece and writes that into the complex of its NIC.  This serializes it and
sends it to the other's complex, which makes an object of it and writes that into its host's memory: in one piece, or
with `batch: false` header, slots and strings one by one, as a deserializer without memory of its own has to.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from workloads.base.entry import Algorithm
from workloads.parts.context import Context
from workloads.parts.part import Part
from workloads.programs.costs import MessageCosts, Work
from workloads.programs.mailbox import Mailbox, mailboxes
from workloads.programs.message import Damaged, Shape, decode, encode, flatten, pieces, unflatten, wrong_bytes
from workloads.verbs.wire import Record

_CALL, _ANSWER = 0, 1


@dataclass(frozen=True)
class _Told:
    """What `message` of the step says."""

    levels: int
    fields: int
    requests: int
    outstanding: int
    batch: bool
    handler_ns: float

    @classmethod
    def of(cls, message: Mapping[str, Any]) -> _Told:
        keys = ("nesting", "fields", "requests", "outstanding", "batch", "handler")
        return cls(*(message[key] for key in keys))


class Rpc(Part):
    """One end: a host that calls or serves, or the complex of its NIC."""

    def __init__(
        self, context: Context, entry: Algorithm, ranks: Sequence[int], dtype: str, op: str | None, tag: int
    ) -> None:
        super().__init__(context, entry, ranks, dtype, op, tag)
        message, helpers = context.options["message"], context.options.get("helpers", ())
        self.told, self.costs = _Told.of(message), MessageCosts.of(message)
        self.hosts, self.complexes = list(ranks[: len(ranks) - len(helpers)]), list(helpers)
        self.place = self.index % len(self.hosts)  # which host it is, or whose complex
        self.served = self.place == 0
        self.on_complex = self.index >= len(self.hosts)
        largest = Shape(max(context.options["sizes"]), self.told.levels, self.told.fields)
        self.room = max(largest.object_bytes, largest.wire_bytes())
        self.wrong = 0

    def _connect(self, peers: Sequence[tuple[int, int]]) -> list[Mailbox]:
        """Mailboxes with these ends, by tags of ours."""
        told = [(end, self.tag + tag) for end, tag in peers]
        self.boxes = mailboxes(self.context, told, self.room, self.told.outstanding)
        return list(self.boxes.values())

    def prepare(self, size_bytes: int, variant: int) -> None:
        self.shape = Shape(size_bytes, self.told.levels, self.told.fields)
        self.variant, self.wrong = variant, 0
        for box in self.boxes.values():
            box.expect(self.told.requests)

    def run(self) -> None:
        of = left = self.told.requests * len(self.boxes)
        self._begin()
        while left:
            for record in self.device.wait():
                self._take(self.boxes[record.qp], record)
                left -= 1
            self.context.tick(of - left, of)

    def finish(self) -> int:
        return self.wrong

    def _begin(self) -> None:
        """What it does by itself."""

    def _take(self, box: Mailbox, record: Record) -> None:
        raise NotImplementedError

    def _message(self, caller: int, number: int, way: int) -> bytes:
        """The object that is sent."""
        self.device.progress()
        return flatten(self.shape.drawn(self.context.seed, self.variant, caller, number, way))

    def _check(self, got: bytes, caller: int, number: int, way: int) -> None:
        want = self._message(caller, number, way)
        self.wrong += wrong_bytes(got, want)

    def _spend(self, work: Work) -> None:
        self.device.spend(work.ns(self.shape))


class _Caller:
    """A host that calls: its calls are made in order, and each answer makes room for the next."""

    def __init__(self, told: _Told) -> None:
        self.next, self.of, self.first = 0, told.requests, min(told.outstanding, told.requests)

    def calls(self, room: int) -> Iterator[int]:
        while room and self.next < self.of:
            room -= 1
            self.next += 1
            yield self.next - 1


class ByHosts(Rpc):
    """Host cores serialize."""

    def __init__(
        self, context: Context, entry: Algorithm, ranks: Sequence[int], dtype: str, op: str | None, tag: int
    ) -> None:
        super().__init__(context, entry, ranks, dtype, op, tag)
        callers = range(1, len(self.hosts)) if self.served else [self.place]
        self._connect([(self.hosts[k if self.served else 0], k) for k in callers])

    def _begin(self) -> None:
        if not self.served:
            self.caller = _Caller(self.told)
            self._call(self.caller.first)

    def _call(self, room: int) -> None:
        (box,) = self.boxes.values()
        for number in self.caller.calls(room):
            self._send(box, self._message(self.device.rank, number, _CALL), number)

    def _send(self, box: Mailbox, message: bytes, number: int) -> None:
        self._spend(self.costs.host)
        box.send(number, encode(unflatten(message)))

    def _take(self, box: Mailbox, record: Record) -> None:
        self._spend(self.costs.host)
        number = record.imm
        caller, way = (box.peer, _CALL) if self.served else (self.device.rank, _ANSWER)
        self._check(_object(box.taken(record), self.shape), caller, number, way)
        if self.served:
            self.device.spend(self.told.handler_ns)
            self._send(box, self._message(caller, number, _ANSWER), number)
        else:
            self._call(1)


class ByNics(Rpc):
    """The NICs' complexes serialize.  A complex has two mailboxes for each caller: its own host's, then the NIC's."""

    def __init__(
        self, context: Context, entry: Algorithm, ranks: Sequence[int], dtype: str, op: str | None, tag: int
    ) -> None:
        super().__init__(context, entry, ranks, dtype, op, tag)
        n, own = len(self.hosts), (self.hosts if self.on_complex else self.complexes)[self.place]
        callers = range(1, n) if self.served else [self.place]
        peers = [(own, n + k) for k in callers]
        if self.on_complex:
            peers += [(self.complexes[k if self.served else 0], k) for k in callers]
        self.made = self._connect(peers)

    def _begin(self) -> None:
        if not self.served and not self.on_complex:
            self.caller = _Caller(self.told)
            self._call(self.caller.first)

    def _call(self, room: int) -> None:
        for number in self.caller.calls(room):
            self._hand_over(self.made[0], self._message(self.device.rank, number, _CALL), number)

    def _hand_over(self, box: Mailbox, message: bytes, number: int) -> None:
        """A host's object, in one piece."""
        self.device.spend(self.costs.gather_ns(self.shape))
        box.send(number, message)

    def _take(self, box: Mailbox, record: Record) -> None:
        if self.on_complex:
            self._pass_on(box, record)
            return
        k, number = self.made.index(box), record.imm
        caller, way = (self.hosts[1 + k], _CALL) if self.served else (self.device.rank, _ANSWER)
        self._check(box.taken(record, self.shape.object_bytes), caller, number, way)
        if self.served:
            self.device.spend(self.told.handler_ns)
            self._hand_over(box, self._message(caller, number, _ANSWER), number)
        else:
            self._call(1)

    def _pass_on(self, box: Mailbox, record: Record) -> None:
        """Between a caller's two mailboxes: an object becomes what is sent, or what came becomes an object."""
        self._spend(self.costs.nic)
        self.device.progress()
        half = len(self.made) // 2
        k = self.made.index(box)
        other, got = self.made[(k + half) % len(self.made)], box.taken(record)
        if k < half:
            other.send(record.imm, _serialized(got))
        else:
            message = _object(got, self.shape)
            other.send(record.imm, message, () if self.told.batch else pieces(message))


def _object(wire: bytes, shape: Shape) -> bytes:
    """What became of serialized bytes; where they are damaged, nothing, all of which is wrong."""
    try:
        return flatten(decode(wire, shape.fields))
    except Damaged:
        return b""


def _serialized(message: bytes) -> bytes:
    try:
        return encode(unflatten(message))
    except Damaged:
        return b"\0"
