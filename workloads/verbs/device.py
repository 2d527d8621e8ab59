"""RDMA verbs for a worker: its NIC, registered memory and queue pairs, over the worker socket of `fabricd`.

Posts cost Python time only when they are collected: commands gather in a buffer (session.py) and go out in one packet
with the next wait, in the order in which they were given.  docs/fabricd-protocol.md says what costs emulated time.
"""

from __future__ import annotations

import fcntl
import mmap
import os
from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, NamedTuple, Protocol, Self

from workloads.verbs import wire
from workloads.verbs.bond import COMPLETIONS, Bond
from workloads.verbs.handles import Group, Peer, QueuePair, Region
from workloads.verbs.session import FabricError, Session
from workloads.verbs.wire import Record

FIRST_TAG = 1 << 27
"""From here on tags are of a connection's second queue pair, from twice that on of its third, and so on."""


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


class CompletionError(FabricError):
    """A posted operation failed: `status` as in ibv_wc_status, on queue pair `qp` to rank `peer` (None: unknown)."""

    def __init__(self, status: int, qp: int, peer: int | None) -> None:
        to = "" if peer is None else f" to rank {peer}"
        super().__init__(f"{wire.STATUS.get(status, f'status {status}')} on queue pair {qp}{to}")
        self.status = status
        self.qp = qp
        self.peer = peer


NO_STREAM = 0xFFFFFFFF


class Turns(Protocol):
    """What goes on by itself while we wait (workloads/parts/turns.py)."""

    def records(self, until_ns: float | None) -> Iterable[Record]:
        """Waits like `Device.wait` for one record, and returns what is not its own."""

    def close(self) -> None: ...


class Device:
    """A rank's NIC, compute stream and clock.  One session; as a context manager it says BYE on a clean end.

    `rank`, `ranks`, `mtu` and `real_clock` come from the fabric.  Every method may raise FabricError (the session is
    over) or CompletionError (an operation failed).
    """

    def __init__(
        self,
        path: str | None = None,
        *,
        wake_ns: float = 0.0,
        queue_pairs: int = 1,
        split: bool = False,
        mapped: Callable[[int, int, bool], Any] = lambda fd, nbytes, make: mmap.mmap(fd, nbytes),
    ) -> None:
        """Connects to the worker socket at `path` (default: $RAILBED_SOCKET, else /run/railbed/worker.sock).

        `wake_ns` of host time passes whenever `wait` returns with records.  `queue_pairs`: of each connection, which
        messages take in turn, or are `split` over (bond.py).  `mapped`: maps so many bytes of a file, whose pages are
        to be made at once or not.  Raises OSError when nobody listens.
        """
        self.wake_ns, self._mapped = wake_ns, mapped
        self._queue_pairs, self._split = queue_pairs, split
        self._bonds: dict[int, Bond] = {}  # by the numbers of their members
        self.sends_by: Mapping[str, int | Sequence[int]] = {}
        """What connections send by from now on: traffic class ("": all others) -> a transport's number in the plan, or
        one for each rank; 0: what the NIC sends by."""
        self.turns: Turns | None = None
        self._due: list[Record] = []
        self._peers: dict[int, int] = {}
        self._left: set[int] = set()  # groups
        self._unwanted: set[int] = set()  # cookies of groups that were asked for
        self._cookies = 0
        self._clock_ps = 0
        self.tally = Tally()
        self.session = Session(path)
        try:
            self.session.queue(wire.HELLO, wire.MAGIC, wire.VERSION, 0)
            self.session.flush()
            version, self.rank, self.ranks, flags, self._clock_ps, self.mtu, _ = wire.WELCOME_BODY.unpack(
                self.session.answer(wire.WELCOME, wire.WELCOME_BODY.size)
            )
            if version != wire.VERSION:
                raise FabricError(f"fabricd speaks version {version} of the worker protocol, not {wire.VERSION}")
        except BaseException:
            self.session.close()
            raise
        self.real_clock = bool(flags & 1)
        self.session.unanswered = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        try:
            if kind is None:
                self.close()
        finally:
            self.session.close()
            if self.turns is not None:
                self.turns.close()

    def close(self) -> None:
        """Say BYE and leave."""
        self.session.queue(wire.BYE)
        self.session.flush()
        self.session.close()

    # Memory and connections

    def region(self, nbytes: int) -> Region:
        """Registers `nbytes` of new, zeroed shared memory."""
        fd = os.memfd_create("railbed", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            os.ftruncate(fd, nbytes)
            fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK)
            memory = self._mapped(fd, nbytes, not self.real_clock)
            self.session.flush()  # REGISTER travels alone
            self._cookies += 1
            self.session.queue(wire.REGISTER, nbytes, 0, 0, self._cookies, wire.ALL_ACCESS, 0, 0)
            self.session.flush([fd])
        finally:
            os.close(fd)
        cookie, key = wire.REGION_BODY.unpack(self.session.answer(wire.REGION, wire.REGION_BODY.size))
        if cookie != self._cookies:
            raise FabricError(f"fabricd answered registration {cookie}, not {self._cookies}")
        return Region(memory, key)

    def connect(self, peers: Sequence[Peer]) -> list[QueuePair]:
        """Connects to all `peers` at once and returns their queue pairs in order; waits for every peer's call."""
        if self._queue_pairs == 1:
            return self._connect(peers)
        if max((peer.tag for peer in peers), default=0) >= FIRST_TAG:
            raise FabricError("more steps than connections with several queue pairs have tags for")
        each = [range(self._queue_pairs) for _ in peers]
        calls = [p._replace(tag=p.tag + k * FIRST_TAG) for p, its in zip(peers, each, strict=True) for k in its]
        made = iter(self._connect(calls))
        return [self._bonded([next(made) for _ in its]) for its in each]

    def _bonded(self, members: Sequence[QueuePair]) -> QueuePair:
        """Inside a scale-up domain there is one path: the first one is enough."""
        if members[0].scale_up:
            return members[0]
        bond = Bond(members, split=self._split)
        self._bonds |= {member.number: bond for member in members}
        return bond

    def _connect(self, peers: Sequence[Peer]) -> list[QueuePair]:
        calls: dict[int, Peer] = {}
        for peer in peers:
            if len(peer.private) > wire.MAX_PRIVATE:
                raise ValueError(f"{len(peer.private)} bytes of private data, at most {wire.MAX_PRIVATE}")
            self._cookies += 1
            calls[self._cookies] = peer
            head = (peer.rank, peer.tag, self._cookies, len(peer.private), peer.flags, self._transport(peer), 0)
            self.session.queue(wire.CONNECT, *head, data=peer.private)
        pairs: dict[int, QueuePair] = {}
        while len(pairs) < len(calls):
            for r in self._take(lambda r: r.kind == wire.CONNECTED, len(calls) - len(pairs)):
                if r.wr_id not in calls or r.wr_id in pairs:
                    raise FabricError(f"fabricd answered connection {r.wr_id}, which is not one of ours")
                rank = calls[r.wr_id].rank
                self._peers[r.qp] = rank
                pairs[r.wr_id] = QueuePair(self.session, r.qp, rank, r.private, bool(r.imm))
        return [pairs[cookie] for cookie in calls]

    def _transport(self, peer: Peer) -> int:
        """The number of what a connection sends by."""
        usual = self.sends_by.get("", 0)
        if peer.dscp is not None:
            usual = self.sends_by.get(str(peer.traffic_class), usual)
        its = usual if peer.transport is None else peer.transport
        return its if isinstance(its, int) else its[self.rank]

    def group(self, kind: str, tag: int, ranks: Sequence[int], args: Sequence[int]) -> Group:
        """Joins the group of `ranks` (all must call alike); waits until it is open or refused.

        `kind` is the name of a room in hardware/fabricd/offload/.
        """
        return self.answered(self.ask_group(kind, tag, ranks, args))

    def answered(self, asked: int) -> Group:
        """Waits until the group that has been asked for is open or refused."""
        return self.grouped(self._take(lambda r: r.kind == wire.GROUPED and r.wr_id == asked, 1)[0])

    def ask_group(self, kind: str, tag: int, ranks: Sequence[int], args: Sequence[int]) -> int:
        """The same without waiting: a GROUPED record whose wr_id is the number returned tells what has come of it."""
        self._cookies += 1
        padded = (*args, *[0] * wire.GROUP_ARGS)[: wire.GROUP_ARGS]
        members = array("I", ranks).tobytes()
        self.session.queue(wire.GROUP, kind.encode(), tag, self._cookies, len(ranks), 0, *padded, data=members)
        return self._cookies

    def grouped(self, answer: Record) -> Group:
        """The group that a GROUPED record tells of."""
        return Group(self.session, answer.qp, answer.imm, answer.private.decode("utf-8", "replace"), self._forget)

    def forget_group(self, asked: int) -> None:
        """What has been asked for is not wanted any more: it is left as soon as it is there."""
        self._unwanted.add(asked)
        self._due = [r for r in self._due if self._of_interest(r)]

    # Time

    @property
    def time_ns(self) -> float:
        """This worker's own clock.  Asks fabricd when it may have moved since the last answer."""
        if self.session.unanswered or self.real_clock:
            self._pull(0, wire.FOREVER)
        return self._clock_ps / 1000

    @property
    def answered_ps(self) -> int:
        """This worker's clock at the last answer: what it has queued since is not in it."""
        return self._clock_ps

    def spend(self, ns: float) -> None:
        """Host time passes: moves this worker's own clock."""
        if ns > 0:
            self.session.queue(wire.SPEND, round(ns * 1000))

    def compute(self, ns: float, *, wr_id: int = 0, stream: int = 0) -> None:
        """Queues work on one of the rank's compute streams, which run side by side; a COMPUTED record tells its end.

        NO_STREAM: it waits for nothing else, and nothing for it.
        """
        self.session.queue(wire.COMPUTE, wr_id, round(ns * 1000), stream, 0)

    def wait(self, records: int = 1, until_ns: float | None = None) -> list[Record]:
        """Waits until `records` are due, or the clock shows `until_ns`; returns all that are due, oldest first."""
        until = wire.FOREVER if until_ns is None else round(until_ns * 1000)
        while len(self._due) < records:
            had = len(self._due)
            # a record of one of several queue pairs may stand for several messages, or for none
            self._pull(1 if self._bonds else records - had, until)
            if until != wire.FOREVER and len(self._due) < records and self._clock_ps >= until:
                break
        due, self._due = self._due, []
        if due:
            self.spend(self.wake_ns)
        return due

    def next_records(self, until_ns: float | None = None) -> Iterable[Record]:
        """Like `wait`, but what goes on by itself takes its own, and there may be nothing left of what has come."""
        return self.wait(until_ns=until_ns) if self.turns is None else self.turns.records(until_ns)

    @property
    def bonded(self) -> bool:
        """Whether connections have several queue pairs."""
        return self._queue_pairs > 1

    @property
    def ready(self) -> bool:
        """Whether there are records that came while others were waited for."""
        return bool(self._due)

    def answered_meanwhile(self, clock_ps: int, tally: Tally) -> None:
        """fabricd has said so to who has waited for us."""
        self._clock_ps, self.tally = clock_ps, tally

    def come(self, nbytes: int) -> list[Record]:
        """The records in a packet that is there already; host time passes for them."""
        self._answered(nbytes)
        due, self._due = self._due, []
        if due:
            self.spend(self.wake_ns)
        return due

    def _forget(self, group: int) -> None:
        """A group was left: that it has failed is of no interest any more, whenever it did."""
        self._left.add(group)
        self._due = [r for r in self._due if self._of_interest(r)]

    def _of_interest(self, record: Record) -> bool:
        if record.kind == wire.GROUPED and record.wr_id in self._unwanted:
            self.grouped(record).leave()
            return False
        return record.kind not in (wire.GROUP_FAILED, wire.GROUP_NOTED) or record.qp not in self._left

    def poll(self) -> list[Record]:
        """All records that are due, at no cost; does not wait."""
        self._pull(0, wire.FOREVER)
        due, self._due = self._due, []
        return due

    def sync(self, tag: int, participants: int) -> float:
        """Waits until `participants` ranks have called with `tag`, at no cost; returns the common time in ns."""
        self.ask_sync(tag, participants)
        return self.sync_answer(tag)

    def sync_answer(self, tag: int) -> float:
        """Waits for the answer to a sync that has been asked for; returns the common time in ns."""
        answer = self._take(lambda r: r.kind == wire.SYNCED, 1)[0]
        if answer.wr_id != tag:
            raise FabricError(f"fabricd answered sync {answer.wr_id}, not {tag}")
        return answer.time_ps / 1000

    def ask_sync(self, tag: int, participants: int) -> None:
        """Calls a sync without waiting for it: a SYNCED record with `tag` as its wr_id tells that all have called."""
        self.session.queue(wire.SYNC, tag, participants)

    def progress(self) -> None:
        """Call often during long work on the host: now and then it tells fabricd that this worker is alive."""
        self.session.progress()

    # Programs

    def fileno(self) -> int:
        """Something can be read as soon as fabricd has answered."""
        return self.session.fileno()

    def await_programs(self, programs: int, until_ns: float | None = None) -> None:
        """Begins to wait, having started so many programs that have not ended; the clock waits for those that have not
        opened the NIC yet.  `programs_awaited` takes the answer, of which there is one for each call: when nothing is
        left of them, when a record is due, at `until_ns`, or as soon as this is called again."""
        until = wire.FOREVER if until_ns is None else round(until_ns * 1000)
        self.session.queue(wire.AWAIT_PROGRAMS, programs, 0, until)
        self.session.flush()

    def interrupt(self) -> None:
        """Has fabricd answer now."""
        self.session.queue(wire.PROGRESS)
        self.session.flush()

    def programs_awaited(self) -> list[Record]:
        """The records that are due."""
        self._answered()
        due, self._due = self._due, []
        return due

    # Records

    def _pull(self, records: int, until_ps: int) -> None:
        """One WAIT: adds what is due to `_due`.  Raises CompletionError for the first record that failed."""
        self.session.queue(wire.WAIT, records, 0, until_ps)
        self.session.flush()
        self._answered()

    def _answered(self, come: int | None = None) -> None:
        body = self.session.answer(wire.RECORDS, None, come)
        try:
            if len(body) < wire.RECORDS_BODY.size:
                raise wire.Malformed("records without a header")
            self._clock_ps, count, _, *tally = wire.RECORDS_BODY.unpack_from(body)
            self.tally = Tally(*tally)
            arrived = wire.records(body, wire.RECORDS_BODY.size, count)
        except wire.Malformed as e:
            raise FabricError(f"fabricd sent {e}") from None
        self.session.unanswered = False
        for r in arrived:
            if r.status:
                raise CompletionError(r.status, r.qp, self._peers.get(r.qp))
        if self._bonds:
            arrived = [whole for record in arrived for whole in self._whole(record)]
        self._due += [r for r in arrived if self._of_interest(r)] if self._left or self._unwanted else arrived

    def _whole(self, record: Record) -> Iterable[Record]:
        """What a record means for several queue pairs that are used as one."""
        bond = self._bonds.get(record.qp) if record.kind in COMPLETIONS else None
        return (record,) if bond is None else bond.told(record)

    def _take(self, wanted: Callable[[Record], bool], count: int) -> list[Record]:
        """Waits for `count` records that are `wanted` and takes them out; the others stay for `wait`."""
        while sum(map(wanted, self._due)) < count:
            self._pull(1, wire.FOREVER)
        taken = [r for r in self._due if wanted(r)]
        self._due = [r for r in self._due if not wanted(r)]
        return taken
