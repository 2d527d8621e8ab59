"""A second implementation of the worker protocol: a fabric for property tests of schedules.

It has no packets.  A message takes a random time; its source is read and its target written at random moments within
that time, so that a workload that touches a buffer too early or reuses it too soon gets wrong data.  Messages of
a queue pair stay in order; in any order its writes overtake each other (`transport.ordering: any`), and an immediate
speaks for its message, and for those before it that have none.  The clock is virtual: it moves only while
every worker waits.  Whatever the protocol forbids ends the whole run, and `error` says why; so does an immediate or a
send that finds no receive posted.

Ranks run in this thread, one at a time (greenlets): in place of the socket stands a channel, and who waits for an
answer lets the others go on.
"""

from __future__ import annotations

import fcntl
import heapq
import mmap
import os
import random
import socket
import struct
from array import array
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from unittest import mock

from greenlet import greenlet

from workloads.verbs import session, wire
from workloads.verbs.device import NO_STREAM

RECORDS_PER_PACKET = 5  # few, so that `more` is used
_LONGEST_PS = 10**3, 10**5, 10**8


class Violation(Exception):
    """Something that the protocol forbids, or that a workload must never do."""


@dataclass
class Pair:
    """One end of a connection."""

    number: int
    owner: Session
    other: Pair | None = None
    receives: deque[tuple[int, int, int, int]] = field(default_factory=deque)  # key, wr_id, offset, length
    read_ps: int = 0  # never go backwards along the connection
    written_ps: int = 0
    acked_ps: int = 0
    untold_ps: int = 0  # in any order: when the writes have come that no immediate speaks for yet


@dataclass
class Session:
    """A worker as the fabric sees it."""

    rank: int
    channel: Channel
    clock_ps: int = 0
    host_ps: int = 0
    sent_bytes: int = 0
    state: str = "greeting"  # greeting, running, waiting, done
    due: deque[bytes] = field(default_factory=deque)
    need: int = 0
    until_ps: int = 0
    regions: dict[int, mmap.mmap] = field(default_factory=dict)
    pairs: dict[int, Pair] = field(default_factory=dict)
    stream_ps: dict[int, int] = field(default_factory=dict)


class Channel:
    """A worker's socket: what it says gathers, and it goes on when there is an answer."""

    def __init__(self, fabric: FakeFabric) -> None:
        self.fabric = fabric
        self.said: deque[tuple[bytes, list[int]]] = deque()
        self.answers: deque[bytes] = deque()
        self.closed = False

    def connect(self, path: str) -> None:
        self.fabric.channels[path] = self

    def close(self) -> None:
        self.closed = True

    def sendmsg(self, buffers: Iterable[bytes], rights: Sequence[tuple[int, int, array[int]]] = ()) -> None:
        if self.fabric.ended:
            raise BrokenPipeError
        self.said.append((b"".join(buffers), [os.dup(fd) for _, _, fds in rights for fd in fds]))

    def send(self, data: bytes) -> None:
        self.sendmsg([data])

    def recv_into(self, buffer: bytearray) -> int:
        while not self.answers and not self.fabric.ended:
            self.fabric.hub.switch()
        answer = self.answers.popleft() if self.answers else b""
        buffer[: len(answer)] = answer
        return len(answer)


class FakeFabric:
    """Runs the program of every rank to its end (`serve`); then look at `error`."""

    def __init__(self, ranks: int, seed: int = 0, *, post_ns: int = 100, any_order: bool = False) -> None:
        self.ranks = ranks
        self.random = random.Random(seed)
        self.any_order = any_order
        self.post_ps = post_ns * 1000
        self.now_ps = 0
        self.messages = self.computations = 0
        self.signs_of_life = 0
        self.error: str | None = None
        self.ended = False
        self.channels: dict[str, Channel] = {}
        self.corrupt: Callable[[int], bool] = lambda message: False
        self.status: Callable[[int], int] = lambda message: 0
        self._events: list[tuple[int, int, Callable[[], None]]] = []
        self._counter = 0
        self._sessions: dict[int, Session] = {}
        self._ready: list[Session] = []  # have an answer to read
        self._left = ranks
        self._calls: dict[tuple[int, int, int], tuple[Session, int, bytes]] = {}
        self._syncs: dict[int, tuple[int, list[Session]]] = {}
        known = {op: getattr(self, f"_op_{op}", None) for op in wire.BODY}
        self._operations = {op: (wire.BODY[op], call) for op, call in known.items() if call is not None}

    @staticmethod
    def path(rank: int) -> str:
        return f"rank {rank}"

    # The loop

    def serve(self, *programs: Callable[[], object]) -> None:
        """One program a rank, which opens its device at `path(rank)`.  Their errors are theirs to catch."""
        assert len(programs) == self.ranks
        self.hub = greenlet.getcurrent()
        running = [greenlet(program) for program in programs]
        ours = SimpleNamespace(**{name: getattr(socket, name) for name in dir(socket) if name.isupper()})
        ours.socket = lambda *_: Channel(self)
        with mock.patch.object(session, "socket", ours):
            try:
                for rank, program in enumerate(running):
                    program.switch()
                    self._sessions[rank] = Session(rank, self.channels[self.path(rank)])
                self._loop(running)
            except Violation as e:
                self.error = str(e)
                for s in self._sessions.values():
                    if s.state != "done":
                        self._tell(s, wire.ERROR, self.error.encode())
            self.ended = True
            for program in running:  # the last answers are still there to be read
                while not program.dead:
                    program.switch()
        self._events.clear()
        for s in self._sessions.values():  # each has a descriptor, and `select` takes none beyond 1,023
            for region in s.regions.values():
                region.close()

    def _loop(self, running: Sequence[greenlet]) -> None:
        for s in self._sessions.values():
            self._listen(s)
        while self._left:
            if self._ready:
                at = int(self.random.random() * len(self._ready))
                self._ready[at], self._ready[-1] = self._ready[-1], self._ready[at]
                s = self._ready.pop()
                running[s.rank].switch()
                self._listen(s)
                if running[s.rank].dead and s.state != "done":
                    raise Violation(f"rank {s.rank} left without BYE")
                if s.state == "running" and not s.channel.answers:
                    raise Violation(f"rank {s.rank} neither waits nor leaves")
            elif self._events:
                self.now_ps, _, event = heapq.heappop(self._events)
                event()
            else:
                raise Violation("stalled: every worker waits and nothing is under way")

    def _listen(self, s: Session) -> None:
        while s.channel.said:
            self._packet(s, *s.channel.said.popleft())

    def _at(self, time_ps: int, event: Callable[[], None]) -> None:
        self._counter += 1
        now_ps = self.now_ps
        heapq.heappush(self._events, (time_ps if time_ps > now_ps else now_ps, self._counter, event))

    # What workers say

    def _packet(self, s: Session, data: bytes, fds: list[int]) -> None:
        if len(data) > wire.MAX_PACKET:
            raise Violation("a packet of more than 64 KiB")
        at, size, header, read = 0, len(data), wire.COMMAND.size, wire.COMMAND.unpack_from
        while at < size:
            if s.state not in ("greeting", "running"):
                raise Violation(f"rank {s.rank} speaks while {s.state}")
            try:
                op, length, zero = read(data, at)
                layout, operation = self._operations[op]
                body = layout.unpack_from(data, at + header)
            except (struct.error, KeyError):
                raise Violation("not a command") from None
            rest = data[at + header + layout.size : at + length]
            at += length
            if length % 8 or at > size or zero or (rest and op != wire.CONNECT):
                raise Violation(f"command {op} of {length} bytes")
            if (op == wire.HELLO) != (s.state == "greeting"):
                raise Violation("HELLO comes first, and once")
            if op == wire.REGISTER and (size != length or len(fds) != 1):
                raise Violation("REGISTER travels alone, with one descriptor")
            operation(s, *body, *([rest] if op == wire.CONNECT else fds))
            if op in (wire.WAIT, wire.BYE) and at != size:
                raise Violation(f"command {op} must be the last of its packet")

    def _op_1(self, s: Session, magic: int, version: int, flags: int) -> None:
        if (magic, version, flags) != (wire.MAGIC, wire.VERSION, 0):
            raise Violation("not our magic or version")
        s.state = "running"
        self._tell(s, wire.WELCOME, wire.WELCOME_BODY.pack(wire.VERSION, s.rank, self.ranks, 0, s.clock_ps, 4096, 0))

    def _op_2(
        self,
        s: Session,
        length: int,
        address: int,
        place: int,
        cookie: int,
        access: int,
        domain: int,
        zero: int,
        fd: int,
    ) -> None:
        if not fcntl.fcntl(fd, fcntl.F_GET_SEALS) & fcntl.F_SEAL_SHRINK or os.fstat(fd).st_size < length or zero:
            raise Violation("a region that is unsealed or too short")
        if (address, place, access, domain) != (0, 0, wire.ALL_ACCESS, 0):
            raise Violation("a region of a rank's worker that is not as all of them")
        key = self.random.randrange(2**32)
        s.regions[key] = mmap.mmap(fd, length)
        os.close(fd)
        self._tell(s, wire.REGION, wire.REGION_BODY.pack(cookie, key))

    def _op_3(
        self,
        s: Session,
        peer: int,
        tag: int,
        cookie: int,
        length: int,
        flags: int,
        transport: int,
        zero: int,
        private: bytes,
    ) -> None:
        if not (0 <= peer < self.ranks and peer != s.rank and length <= 256 and len(private) == -(-length // 8) * 8):
            raise Violation("CONNECT to nobody, or with wrong private data")
        if any(private[length:]) or zero or flags & ~0x7FF or (flags & 0x7FC and not flags & wire.OWN_CLASS):
            raise Violation("CONNECT with unknown flags or padding")
        me, there = (s.rank, peer, tag), (peer, s.rank, tag)
        if me in self._calls:
            raise Violation(f"CONNECT to rank {peer} with tag {tag} twice")
        self._calls[me] = (s, cookie, private[:length])
        if there not in self._calls:
            return
        other, other_cookie, other_private = self._calls[there]
        ends = [Pair(self.random.randrange(2**32), owner) for owner in (s, other)]
        ends[0].other, ends[1].other = ends[1], ends[0]
        time_ps = max(s.clock_ps, other.clock_ps) + self.random.randrange(10**6)
        for end, number, data in ((ends[0], cookie, other_private), (ends[1], other_cookie, private[:length])):
            end.owner.pairs[end.number] = end
            padded = data + bytes(-len(data) % 8)
            self._record_at(time_ps, end.owner, wire.CONNECTED, number, end.number, 0, len(data), data=padded)

    def _op_4(
        self,
        s: Session,
        qp: int,
        opcode: int,
        flags: int,
        zero: int,
        wr_id: int,
        lkey: int,
        rkey: int,
        local: int,
        remote: int,
        length: int,
        imm: int,
        zero2: int,
    ) -> None:
        s.clock_ps += self.post_ps
        s.host_ps += self.post_ps
        s.sent_bytes += length
        pair = self._pair(s, qp)
        assert pair.other is not None
        if opcode > wire.SEND or flags & ~wire.SIGNALED or zero or zero2:
            raise Violation("POST_SEND with unknown opcode or flags")
        source = self._memory(s, lkey, local, length)
        other = pair.other
        target = None if opcode == wire.SEND else self._memory(other.owner, rkey, remote, length)
        number = self.messages
        self.messages += 1
        pair.read_ps = max(pair.read_ps, s.clock_ps) + self._some_time()
        after = opcode == wire.SEND or not self.any_order
        arrived_ps = max(pair.written_ps if after else 0, pair.read_ps) + self._some_time() + self._some_time()
        if opcode == wire.WRITE:
            pair.untold_ps = max(pair.untold_ps, arrived_ps)
        else:
            arrived_ps, pair.untold_ps = max(arrived_ps, pair.untold_ps), 0
        pair.written_ps = max(pair.written_ps, arrived_ps)
        pair.acked_ps = max(pair.acked_ps, pair.written_ps) + self._some_time()
        payload = bytearray()

        def read() -> None:
            payload.extend(source)
            if payload and self.corrupt(number):
                payload[self.random.randrange(len(payload))] ^= 0x55

        def write() -> None:
            target[:] = payload  # type: ignore[index]

        def arrive() -> None:
            if not other.receives:
                raise Violation(
                    f"message {number} from rank {s.rank} to rank {other.owner.rank} finds no receive posted"
                )
            key, receive_id, offset, room = other.receives.popleft()
            if opcode == wire.SEND:
                if room < length:
                    raise Violation("a send that is longer than its receive")
                self._memory(other.owner, key, offset, length)[:] = payload
            kind = wire.RECEIVED if opcode == wire.SEND else wire.RECEIVED_IMM
            self._record(other.owner, kind, receive_id, other.number, imm if opcode == wire.WRITE_IMM else 0, length)

        def ack() -> None:
            self._record(s, wire.SENT, wr_id, qp, 0, length, status=status)

        status = self.status(number)
        if not status:
            self._at(pair.read_ps, read)
            if target is not None:
                self._at(pair.read_ps + int(self.random.random() * (arrived_ps + 1 - pair.read_ps)), write)
            if opcode != wire.WRITE:
                self._at(arrived_ps, arrive)
        if flags & wire.SIGNALED or status:
            self._at(pair.acked_ps, ack)

    def _op_5(self, s: Session, qp: int, lkey: int, wr_id: int, offset: int, length: int) -> None:
        s.clock_ps += self.post_ps
        s.host_ps += self.post_ps
        pair = self._pair(s, qp)
        self._memory(s, lkey, offset, length)
        self._at(s.clock_ps, lambda: pair.receives.append((lkey, wr_id, offset, length)))

    def _op_6(self, s: Session, wr_id: int, duration_ps: int, stream: int, zero: int) -> None:
        self.computations += 1
        begin = s.clock_ps if stream == NO_STREAM else max(s.stream_ps.get(stream, 0), s.clock_ps)
        s.stream_ps[stream] = begin + duration_ps
        self._record_at(s.stream_ps[stream], s, wire.COMPUTED, wr_id, 0, 0, 0)

    def _op_7(self, s: Session, duration_ps: int) -> None:
        s.clock_ps += duration_ps
        s.host_ps += duration_ps

    def _op_8(self, s: Session, need: int, zero: int, until_ps: int) -> None:
        s.state, s.need, s.until_ps = "waiting", need, until_ps
        self._at(s.clock_ps, lambda: self._wake(s))
        if until_ps != wire.FOREVER:
            self._at(max(until_ps, s.clock_ps), lambda: self._wake(s))

    def _op_9(self, s: Session, tag: int, participants: int) -> None:
        expected, callers = self._syncs.setdefault(tag, (participants, []))
        if participants != expected or s in callers:
            raise Violation(f"SYNC {tag}: {participants} participants where there are {expected}, or called twice")
        callers.append(s)
        if len(callers) == participants:
            del self._syncs[tag]
            time_ps = max(c.clock_ps for c in callers)
            for c in callers:
                self._record_at(time_ps, c, wire.SYNCED, tag, 0, 0, 0)

    def _op_10(self, s: Session) -> None:
        self.signs_of_life += 1

    def _op_11(self, s: Session) -> None:
        s.state = "done"
        self._left -= 1

    # What they are told

    def _pair(self, s: Session, number: int) -> Pair:
        if number not in s.pairs:
            raise Violation(f"rank {s.rank} has no queue pair {number}")
        return s.pairs[number]

    def _memory(self, s: Session, key: int, offset: int, length: int) -> memoryview:
        region = s.regions.get(key)
        if region is None or offset + length > len(region):
            raise Violation(f"rank {s.rank}: bytes {offset}+{length} of region {key:#x}, which is shorter or not there")
        return memoryview(region)[offset : offset + length]

    def _some_time(self) -> int:
        """Mostly short, sometimes very long: neighbours run ahead of each other."""
        drawn = self.random.random
        return int(drawn() * _LONGEST_PS[int(drawn() * 3)])

    def _record_at(
        self, time_ps: int, s: Session, kind: int, wr_id: int, qp: int, imm: int, nbytes: int, *, data: bytes = b""
    ) -> None:
        self._at(time_ps, lambda: self._record(s, kind, wr_id, qp, imm, nbytes, data=data))

    def _record(
        self,
        s: Session,
        kind: int,
        wr_id: int,
        qp: int,
        imm: int,
        nbytes: int,
        *,
        status: int = 0,
        data: bytes = b"",
    ) -> None:
        length = wire.RECORD.size + len(data)
        s.due.append(wire.RECORD.pack(kind, length, status, wr_id, self.now_ps, qp, imm, nbytes) + data)
        self._wake(s)

    def _wake(self, s: Session) -> None:
        """Answers a WAIT if it is time: not before the worker's own clock, which may be ahead."""
        if s.state != "waiting" or self.now_ps < s.clock_ps:
            return
        if len(s.due) >= s.need or self.now_ps >= s.until_ps:
            s.state, s.clock_ps = "running", self.now_ps
            told = [s.due.popleft() for _ in range(min(len(s.due), RECORDS_PER_PACKET))]
            head = wire.RECORDS_BODY.pack(s.clock_ps, len(told), len(s.due), s.host_ps, s.sent_bytes)
            self._tell(s, wire.RECORDS, head + b"".join(told))

    def _tell(self, s: Session, kind: int, body: bytes) -> None:
        if not s.channel.answers:
            self._ready.append(s)
        s.channel.answers.append(wire.PACKET.pack(kind, 0, wire.PACKET.size + len(body)) + body)
