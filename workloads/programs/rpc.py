"""Remote procedure calls whose messages are serialized by hosts, or by the NICs in between (RpcNIC).

The first rank of a group serves, the others call it: each makes `requests` calls, `outstanding` of them at a time, with
another message of the step's size in each, and gets one of the same shape back.

By hosts, a core serializes an object, writes it into the other host's memory, and a core there makes an object of it.
By NICs, a host copies its object into one piece and writes that into the complex of its NIC.  This serializes it and
sends it to the other's complex, which makes an object of it and writes that into its host's memory: in one piece, or
with `batch: false` header, slots and strings one by one, as a deserializer without memory of its own has to.
"""

from __future__ import annotations

from collections.abc import Sequence

from workloads.parts.part import Part
from workloads.programs.costs import MessageCosts, Work
from workloads.programs.mailbox import Mailbox, mailboxes
from workloads.programs.message import Damaged, Shape, decode, encode, flatten, pieces, unflatten, wrong_bytes
from workloads.verbs.wire import Record

_CALL, _ANSWER = 0, 1


class Rpc(Part):
    """One end: a host that calls or serves, or the complex of its NIC."""

    def setup(self) -> None:
        self.options, helpers = self.context.options["message"], self.context.options.get("helpers", ())
        self.costs = MessageCosts.of(self.options)
        self.hosts, self.complexes = list(self.ranks[: len(self.ranks) - len(helpers)]), list(helpers)
        self.place = self.index % len(self.hosts)  # which host it is, or whose complex
        self.served = self.place == 0
        self.on_complex = self.index >= len(self.hosts)
        largest = Shape(max(self.context.options["sizes"]), self.options["nesting"], self.options["fields"])
        self.room = max(largest.object_bytes, largest.wire_bytes())
        self.wrong = 0

    def _connect(self, peers: Sequence[tuple[int, int]]) -> None:
        """Mailboxes with these ends, by tags of ours."""
        ends = [(end, self.tag + tag) for end, tag in peers]
        self.boxes = mailboxes(self.context, ends, self.room, self.options["outstanding"])
        self.in_order = list(self.boxes.values())

    def prepare(self, size_bytes: int, variant: int) -> None:
        self.shape = Shape(size_bytes, self.options["nesting"], self.options["fields"])
        self.variant, self.wrong = variant, 0
        for box in self.boxes.values():
            box.expect(self.options["requests"])

    def run(self) -> None:
        of = left = self.options["requests"] * len(self.boxes)
        self._begin()
        while left:
            for record in self.device.wait():
                self._take(self.boxes[record.qp], record)
                left -= 1
            self.context.tick(of - left, of)

    def finish(self) -> int:
        return self.wrong

    def _begin(self) -> None:
        self.next = 0
        if not self.served and not self.on_complex:
            self._call(self.options["outstanding"])

    def _call(self, count: int) -> None:
        """The next calls, in order; each answer makes room for one more."""
        for number in range(self.next, min(self.next + count, self.options["requests"])):
            self.next += 1
            self._send(self.in_order[0], self._message(self.device.rank, number, _CALL), number)

    def _send(self, box: Mailbox, message: bytes, number: int) -> None:
        """A host sends an object."""
        raise NotImplementedError

    def _received(self, box: Mailbox, message: bytes, caller: int, number: int) -> None:
        """At a host: an object, which is a call to be served, or an answer."""
        want = self._message(caller, number, _CALL if self.served else _ANSWER)
        self.wrong += wrong_bytes(message, want)
        if self.served:
            self.device.spend(self.options["handler"])
            self._send(box, self._message(caller, number, _ANSWER), number)
        else:
            self._call(1)

    def _take(self, box: Mailbox, record: Record) -> None:
        raise NotImplementedError

    def _message(self, caller: int, number: int, kind: int) -> bytes:
        """The object that is sent."""
        self.device.progress()
        return flatten(self.shape.drawn(self.context.seed, self.variant, caller, number, kind))

    def _spend(self, work: Work) -> None:
        self.device.spend(work.ns(self.shape))


class ByHosts(Rpc):
    """Host cores serialize."""

    def setup(self) -> None:
        super().setup()
        callers = range(1, len(self.hosts)) if self.served else [self.place]
        self._connect([(self.hosts[k if self.served else 0], k) for k in callers])

    def _send(self, box: Mailbox, message: bytes, number: int) -> None:
        self._spend(self.costs.host)
        box.send(number, encode(unflatten(message)))

    def _take(self, box: Mailbox, record: Record) -> None:
        self._spend(self.costs.host)
        caller = box.peer if self.served else self.device.rank
        self._received(box, _object(box.read(record), self.shape), caller, record.imm)


class ByNics(Rpc):
    """The NICs' complexes serialize.  A complex has two mailboxes for each caller: its own host's, then the NIC's."""

    def setup(self) -> None:
        super().setup()
        n, own = len(self.hosts), (self.hosts if self.on_complex else self.complexes)[self.place]
        callers = range(1, n) if self.served else [self.place]
        peers = [(own, n + k) for k in callers]
        if self.on_complex:
            peers += [(self.complexes[k if self.served else 0], k) for k in callers]
        self._connect(peers)

    def _send(self, box: Mailbox, message: bytes, number: int) -> None:
        """A host's object, in one piece."""
        self.device.spend(self.costs.gather_ns(self.shape))
        box.send(number, message)

    def _take(self, box: Mailbox, record: Record) -> None:
        if self.on_complex:
            self._pass_on(box, record)
            return
        caller = self.hosts[1 + self.in_order.index(box)] if self.served else self.device.rank
        self._received(box, box.read(record, self.shape.object_bytes), caller, record.imm)

    def _pass_on(self, box: Mailbox, record: Record) -> None:
        """Between a caller's two mailboxes: an object becomes what is sent, or what came becomes an object."""
        self._spend(self.costs.nic)
        self.device.progress()
        half = len(self.in_order) // 2
        k = self.in_order.index(box)
        other, received = self.in_order[(k + half) % len(self.in_order)], box.read(record)
        if k < half:
            other.send(record.imm, _serialized(received))
        else:
            message = _object(received, self.shape)
            other.send(record.imm, message, () if self.options["batch"] else pieces(message))


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
