"""RDMA verbs for a worker: its NIC, registered memory and queue pairs, over the worker socket of `fabricd`.

Posts cost Python time only when they are collected: commands gather in a buffer and go out in one packet with the
next wait, in the order in which they were given.  docs/fabricd-protocol.md says
what costs emulated time.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import socket
import time
from array import array
from collections.abc import Callable, Iterable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from workloads.verbs import wire
from workloads.verbs.wire import Record

if TYPE_CHECKING:
    from numpy.typing import NDArray

DEFAULT_SOCKET = "/run/railbed/worker.sock"
PROGRESS_EVERY_S = 0.25  # a worker that says nothing while it runs tries fabricd's patience
_LARGEST_ANSWER = 1 << 20


class FabricError(Exception):
    """The fabric ended this worker's session; the text says why."""


class CompletionError(FabricError):
    """A posted operation failed: `status` as in ibv_wc_status, on queue pair `qp` to rank `peer` (None: unknown)."""

    def __init__(self, status: int, qp: int, peer: int | None) -> None:
        to = "" if peer is None else f" to rank {peer}"
        super().__init__(f"{wire.STATUS.get(status, f'status {status}')} on queue pair {qp}{to}")
        self.status = status
        self.qp = qp
        self.peer = peer


class Region:
    """Memory shared with the NIC; `key` serves as lkey and rkey."""

    def __init__(self, memory: mmap.mmap, key: int) -> None:
        self._memory = memory
        self.key = key

    def __len__(self) -> int:
        return len(self._memory)

    def view(self, dtype: str, offset_bytes: int = 0, count: int = -1) -> NDArray[Any]:
        """A numpy view of `count` elements (-1: all that fit) from byte `offset_bytes` on, without a copy."""
        import numpy as np

        if count < 0:
            count = (len(self) - offset_bytes) // np.dtype(dtype).itemsize
        return np.frombuffer(self._memory, dtype, count, offset_bytes)


class Peer(NamedTuple):
    """One side's call of a connection: both ranks give the same `tag`, each hands the other up to 256 private bytes."""

    rank: int
    tag: int
    private: bytes = b""
    network_only: bool = False  # True: never the scale-up domain


class Tally(NamedTuple):
    """What a worker has taken until its last answer: differences of two say what something took between them.

    `host_ps`: emulated time in which its host was busy posting, waking up and computing on data (not waiting).
    `sent_bytes`: data frames, headers included, that its NIC put on its cable (also those sent again; no
    acknowledgements, nothing within the scale-up domain).
    """

    host_ps: int = 0
    sent_bytes: int = 0

    def since(self, before: Tally) -> Tally:
        return Tally(self.host_ps - before.host_ps, self.sent_bytes - before.sent_bytes)


class QueuePair:
    """A reliable connection to one peer.  Posts go out with the device's next wait."""

    def __init__(self, device: Device, number: int, peer: int, private: bytes, scale_up: bool) -> None:
        self._post = device._queue
        self.number = number
        self.peer = peer
        self.private = private  # what the peer handed over
        self.scale_up = scale_up

    def write(
        self,
        source: Region,
        offset: int,
        length: int,
        rkey: int,
        target: int,
        *,
        wr_id: int = 0,
        signaled: bool = True,
        imm: int | None = None,
    ) -> None:
        """RDMA write of `length` bytes to byte `target` of the peer's region `rkey`.

        With `imm` it also completes a receive at the peer (RECEIVED_IMM).
        """
        opcode = wire.WRITE if imm is None else wire.WRITE_IMM
        self._send(opcode, source, offset, length, rkey, target, wr_id, signaled, imm or 0)

    def send(self, source: Region, offset: int, length: int, *, wr_id: int = 0, signaled: bool = True) -> None:
        """Send `length` bytes into the peer's next posted receive."""
        self._send(wire.SEND, source, offset, length, 0, 0, wr_id, signaled, 0)

    def recv(self, target: Region, offset: int = 0, length: int = 0, *, wr_id: int = 0) -> None:
        """Post a receive: for a send, or for the immediate of one write (its length may then be 0)."""
        self._post(wire.POST_RECV, self.number, target.key, wr_id, offset, length)

    def _send(
        self,
        opcode: int,
        source: Region,
        offset: int,
        length: int,
        rkey: int,
        target: int,
        wr_id: int,
        signaled: bool,
        imm: int,
    ) -> None:
        flags = wire.SIGNALED if signaled else 0
        self._post(
            wire.POST_SEND,
            *(self.number, opcode, flags, 0, wr_id, source.key, rkey, offset, target, length, imm, 0),
        )


class Group:
    """Ranks whose collectives are offloaded.  `refused` says why it is not open ("": it is)."""

    def __init__(self, device: Device, number: int, granted: int, refused: str) -> None:
        self._device = device
        self._post = device._queue
        self.number = number
        self.granted = granted  # what the kind gets, such as slots
        self.refused = refused

    def post(
        self,
        source: Region,
        offset: int,
        target: Region,
        target_offset: int,
        count: int,
        *,
        collective: int = 0,
        reduction: str | None = None,
        dtype: str = "int32",
        flags: int = 0,
        wr_id: int = 0,
        args: Sequence[int] = (),
    ) -> None:
        """Start a collective of `count` elements; an OFFLOADED record tells its end, GROUP_FAILED that it has none."""
        given = (*args, 0, 0, 0, 0)[:4]
        self._post(
            wire.POST_OFFLOAD,
            *(self.number, collective, wire.REDUCTIONS[reduction or "sum"], wire.ELEMENTS[dtype], flags),
            *(wr_id, source.key, target.key, offset, target_offset, count, *given),
        )

    def leave(self) -> None:
        """Give it up, with what it may still have to say; the group ends when all have left."""
        self._post(wire.LEAVE, self.number, 0)
        self._device._forget(self.number)


class Device:
    """A rank's NIC, compute stream and clock.  One session; as a context manager it says BYE on a clean end.

    `rank`, `ranks`, `mtu` and `real_clock` come from the fabric.  Every method may raise FabricError (the session is
    over) or CompletionError (an operation failed).
    """

    def __init__(self, path: str | None = None, *, wake_ns: float = 0.0) -> None:
        """Connects to the worker socket at `path` (default: $RAILBED_SOCKET, else /run/railbed/worker.sock).

        `wake_ns` of host time passes whenever `wait` returns with records.  Raises OSError when nobody listens.
        """
        self.wake_ns = wake_ns
        self._out = bytearray()
        self._in = bytearray(_LARGEST_ANSWER)
        self._due: list[Record] = []
        self._peers: dict[int, int] = {}
        self._left: set[int] = set()  # groups
        self._cookies = 0
        self._clock_ps = 0
        self._clock_stale = False
        self.tally = Tally()
        self._last_sent_s = 0.0
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            self._socket.connect(path or os.environ.get("RAILBED_SOCKET", DEFAULT_SOCKET))
            self._queue(wire.HELLO, wire.MAGIC, wire.VERSION)
            self._flush()
            version, self.rank, self.ranks, flags, self._clock_ps, self.mtu, _ = wire.WELCOME_BODY.unpack(
                self._answer(wire.WELCOME, wire.WELCOME_BODY.size)
            )
            if version != wire.VERSION:
                raise FabricError(f"fabricd speaks version {version} of the worker protocol, not {wire.VERSION}")
        except BaseException:
            self._socket.close()
            raise
        self.real_clock = bool(flags & 1)
        self._clock_stale = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if kind is None:
            self.close()
        else:
            self._socket.close()  # without BYE: the fabric counts this worker as lost

    def close(self) -> None:
        """Say BYE and leave."""
        self._queue(wire.BYE)
        self._flush()
        self._socket.close()

    # Memory and connections

    def region(self, nbytes: int) -> Region:
        """Registers `nbytes` of new, zeroed shared memory."""
        fd = os.memfd_create("railbed", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            os.ftruncate(fd, nbytes)
            fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK)
            memory = mmap.mmap(fd, nbytes)
            self._flush()  # REGISTER travels alone
            self._cookies += 1
            self._queue(wire.REGISTER, nbytes, self._cookies, 0)
            self._flush([fd])
        finally:
            os.close(fd)
        cookie, key = wire.REGION_BODY.unpack(self._answer(wire.REGION, wire.REGION_BODY.size))
        if cookie != self._cookies:
            raise FabricError(f"fabricd answered registration {cookie}, not {self._cookies}")
        return Region(memory, key)

    def connect(self, peers: Sequence[Peer]) -> list[QueuePair]:
        """Connects to all `peers` at once and returns their queue pairs in order; waits for every peer's call."""
        calls: dict[int, Peer] = {}
        for peer in peers:
            if len(peer.private) > wire.MAX_PRIVATE:
                raise ValueError(f"{len(peer.private)} bytes of private data, at most {wire.MAX_PRIVATE}")
            self._cookies += 1
            calls[self._cookies] = peer
            flags = wire.NETWORK_ONLY if peer.network_only else 0
            head = (peer.rank, peer.tag, self._cookies, len(peer.private), flags)
            self._queue(wire.CONNECT, *head, data=peer.private)
        made: dict[int, QueuePair] = {}
        while len(made) < len(calls):
            for r in self._take(lambda r: r.kind == wire.CONNECTED, len(calls) - len(made)):
                if r.wr_id not in calls or r.wr_id in made:
                    raise FabricError(f"fabricd answered connection {r.wr_id}, which is not one of ours")
                rank = calls[r.wr_id].rank
                self._peers[r.qp] = rank
                made[r.wr_id] = QueuePair(self, r.qp, rank, r.private, bool(r.imm))
        return [made[cookie] for cookie in calls]

    def group(self, kind: str, tag: int, ranks: Sequence[int], args: Sequence[int]) -> Group:
        """Joins the group of `ranks` (all must call alike); waits until it is open or refused.

        `kind` is the name of a room in hardware/fabricd/offload/.
        """
        self._cookies += 1
        cookie = self._cookies
        given = (*args, *[0] * wire.GROUP_ARGS)[: wire.GROUP_ARGS]
        members = array("I", ranks).tobytes()
        self._queue(wire.GROUP, kind.encode(), tag, cookie, len(ranks), 0, *given, data=members)
        answer = self._take(lambda r: r.kind == wire.GROUPED and r.wr_id == cookie, 1)[0]
        return Group(self, answer.qp, answer.imm, answer.private.decode("utf-8", "replace"))

    # Time

    @property
    def time_ns(self) -> float:
        """This worker's own clock.  Asks fabricd when it may have moved since the last answer."""
        if self._clock_stale or self.real_clock:
            self._pull(0, wire.FOREVER)
        return self._clock_ps / 1000

    @property
    def answered_ps(self) -> int:
        """This worker's clock at the last answer: what it has queued since is not in it."""
        return self._clock_ps

    def spend(self, ns: float) -> None:
        """Host time passes: moves this worker's own clock."""
        if ns > 0:
            self._queue(wire.SPEND, round(ns * 1000))

    def compute(self, ns: float, *, wr_id: int = 0) -> None:
        """Queues work on the rank's compute stream; a COMPUTED record tells its end."""
        self._queue(wire.COMPUTE, wr_id, round(ns * 1000))

    def wait(self, records: int = 1, until_ns: float | None = None) -> list[Record]:
        """Waits until `records` are due, or the clock shows `until_ns`; returns all that are due, oldest first."""
        until = wire.FOREVER if until_ns is None else round(until_ns * 1000)
        while len(self._due) < records:
            had = len(self._due)
            self._pull(records - had, until)
            if until != wire.FOREVER and len(self._due) < records and self._clock_ps >= until:
                break
        due, self._due = self._due, []
        if due:
            self.spend(self.wake_ns)
        return due

    def _forget(self, group: int) -> None:
        """A group was left: that it has failed is of no interest any more, whenever it did."""
        self._left.add(group)
        self._due = [r for r in self._due if not self._is_of_left(r)]

    def _is_of_left(self, record: Record) -> bool:
        return record.kind == wire.GROUP_FAILED and record.qp in self._left

    def poll(self) -> list[Record]:
        """All records that are due, at no cost; does not wait."""
        self._pull(0, wire.FOREVER)
        due, self._due = self._due, []
        return due

    def sync(self, tag: int, participants: int) -> float:
        """Waits until `participants` ranks have called with `tag`, at no cost; returns the common time in ns."""
        self._queue(wire.SYNC, tag, participants)
        answer = self._take(lambda r: r.kind == wire.SYNCED, 1)[0]
        if answer.wr_id != tag:
            raise FabricError(f"fabricd answered sync {answer.wr_id}, not {tag}")
        return answer.time_ps / 1000

    def progress(self) -> None:
        """Call often during long work on the host: now and then it tells fabricd that this worker is alive."""
        if time.monotonic() - self._last_sent_s >= PROGRESS_EVERY_S:
            self._send(wire.command(wire.PROGRESS))

    # The socket

    def _queue(self, op: int, *body: int | bytes, data: bytes = b"") -> None:
        """Collects a command.  Packets are at most 64 KiB: a full one goes out at once."""
        command = wire.command(op, *body, data=data)
        if len(self._out) + len(command) > wire.MAX_PACKET:
            self._flush()
        self._out += command
        self._clock_stale = True

    def _flush(self, fds: Iterable[int] = ()) -> None:
        if self._out:
            out, self._out = self._out, bytearray()
            self._send(out, fds)

    def _send(self, data: bytes | bytearray, fds: Iterable[int] = ()) -> None:
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array("i", fds))] if fds else []
        try:
            self._socket.sendmsg([data], rights)
        except (BrokenPipeError, ConnectionError):  # fabricd has closed; what it said is still there to be read
            while True:
                self._receive()
        self._last_sent_s = time.monotonic()

    def _receive(self) -> tuple[int, memoryview]:
        """Kind and body of the next packet (valid until the one after).  Raises FabricError when it is the last."""
        try:
            n, _, flags, _ = self._socket.recvmsg_into([self._in])
        except ConnectionError:  # said once, when fabricd closed before it read all of ours; its last words come after
            n, _, flags, _ = self._socket.recvmsg_into([self._in])
        if n == 0:
            raise FabricError("fabricd closed the session without a word")
        try:
            if flags & socket.MSG_TRUNC:
                raise wire.Malformed(f"a packet over {len(self._in)} bytes")
            kind, body = wire.packet(memoryview(self._in)[:n])
        except wire.Malformed as e:
            raise FabricError(f"fabricd sent {e}") from None
        if kind == wire.ERROR:
            raise FabricError(bytes(body).decode("utf-8", "replace").rstrip("\0"))
        return kind, body

    def _answer(self, expected: int, size: int | None) -> memoryview:
        """The body of the next packet, which must be of kind `expected` and of `size` bytes (None: any)."""
        kind, body = self._receive()
        if kind != expected or (size is not None and len(body) != size):
            raise FabricError(
                f"fabricd sent a packet of kind {kind} with {len(body)} bytes where kind {expected} was due"
            )
        return body

    def _pull(self, records: int, until_ps: int) -> None:
        """One WAIT: adds what is due to `_due`.  Raises CompletionError for the first record that failed."""
        self._queue(wire.WAIT, records, 0, until_ps)
        self._flush()
        body = self._answer(wire.RECORDS, None)
        try:
            if len(body) < wire.RECORDS_BODY.size:
                raise wire.Malformed("records without a header")
            self._clock_ps, count, _, *tally = wire.RECORDS_BODY.unpack_from(body)
            self.tally = Tally(*tally)
            got = list(wire.records(body[wire.RECORDS_BODY.size :], count))
        except wire.Malformed as e:
            raise FabricError(f"fabricd sent {e}") from None
        self._clock_stale = False
        for r in got:
            if r.status:
                raise CompletionError(r.status, r.qp, self._peers.get(r.qp))
        self._due += [r for r in got if not self._is_of_left(r)]

    def _take(self, wanted: Callable[[Record], bool], count: int) -> list[Record]:
        """Waits for `count` records that are `wanted` and takes them out; the others stay for `wait`."""
        while sum(map(wanted, self._due)) < count:
            self._pull(1, wire.FOREVER)
        taken = [r for r in self._due if wanted(r)]
        self._due = [r for r in self._due if not wanted(r)]
        return taken
