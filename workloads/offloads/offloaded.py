"""What all offloaded collectives share: a group, its completions, and a fallback to the hosts.

`OneRequest` is for those whose result goes beside the input, so that the ranks can do it all again by themselves: when
the group is refused, before anything is sent; when it fails, once all have agreed on that.  They agree at the end, at
no cost: a rank that has its result must not go on while another lacks some.  If a group fails before one of its ranks
has begun, that rank posts nothing and meets the others where they agree.

A group that has failed may be had again, by another tree, or when what had died is back.  So its ranks ask for a new
one while they do the work by themselves (`Renewal`), and go over to it when all know that it is open.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from workloads.base import data
from workloads.collectives.schedule import Span, spans
from workloads.parts.part import Part, Sync, Wanted
from workloads.verbs import Device, FabricError, Group, Region, wire

AGREE = 1 << 30  # tags of syncs: apart from those of steps
_RARELY = 16  # iterations before a group is asked for again of which some have failed at once, at most


class Renewal:
    """A new group in place of one that has failed: asked for, answered, and asked for again when it was refused.

    All ranks call `look` once an iteration, where they have met: then they know the same, and do the same.
    """

    def __init__(self, device: Device, ask: Callable[[], int]) -> None:
        self._device, self._ask = device, ask
        self.group: Group | None = None  # open, and not in use yet
        self._asked: int | None = None
        self._answer: Group | None = None
        self._pause, self._left = 1, 0  # iterations between questions, and until the next one

    def begin(self, worked: bool) -> None:
        """A group has failed, and was left.  `worked`: it had done something before."""
        if worked:
            self._pause = 1
            self._asked = self._ask()
        else:
            self._left, self._pause = self._pause, min(2 * self._pause, _RARELY)

    def owns(self, record: wire.Record) -> bool:
        """Whether a record is about a group that was asked for."""
        if record.kind == wire.GROUPED:
            return record.wr_id == self._asked
        got = self._answer or self.group
        return record.kind == wire.GROUP_FAILED and got is not None and record.qp == got.number

    def handle(self, record: wire.Record) -> None:
        if record.kind == wire.GROUPED:
            self._answer = self._device.grouped(record)
        elif got := self._answer or self.group:  # it has failed already
            got.refused = record.private.decode("utf-8", "replace")

    def look(self) -> None:
        """Where all ranks have met: is there a group?  If not, ask again at times."""
        if self._asked is None:
            self._left -= 1
            if not self._left:
                self._asked = self._ask()
        elif self._answer is not None:
            answer, self._answer, self._asked = self._answer, None, None
            if not answer.refused:
                self.group = answer
                return
            answer.leave()
            self._left = 1

    def close(self) -> None:
        if self._asked is not None and self._answer is None:
            self._device.forget_group(self._asked)
        for group in (self.group, self._answer):
            if group is not None:
                group.leave()


class Offloaded(Part):
    """One rank's part: a member of a group.  Subclasses say what follows when a request is done, or the group fails."""

    group: Group | None = None
    given_up: str = ""  # why the group is of no use ("": it is)
    renewal: Renewal | None = None  # since a group has failed
    _alone: Part | None = None
    _worked = False  # the group has carried something out
    _note = _noted = ""  # how else than asked for the group's requests are done now, and in this iteration

    def of_group(self, record: wire.Record) -> bool:
        if self.renewal is not None and self.renewal.owns(record):
            return True
        return self.group is not None and record.qp == self.group.number

    def handle(self, record: wire.Record) -> None:
        if self.renewal is not None and self.renewal.owns(record):
            self.renewal.handle(record)
        elif record.kind == wire.OFFLOADED:
            self._done(record)
        elif record.kind == wire.GROUP_NOTED:
            self._note = record.private.decode("utf-8", "replace")
            self._noted = self._noted or self._note
        elif record.kind == wire.GROUP_FAILED:
            self._failed(record.private.decode("utf-8", "replace") or "the group has failed")
        elif self._alone is not None:
            self._alone.handle(record)
        else:
            raise FabricError(f"a record of kind {record.kind} in {self.entry}")

    def _request(self, source: Region, target: Region, count: int, **request: Any) -> None:
        """Posts a request to the group, of `count` elements in `source` and `target`."""
        assert self.group is not None
        self.group.post(source, 0, target, 0, count, **request)

    def _done(self, record: wire.Record) -> None:
        """A request of ours is carried out."""
        raise NotImplementedError

    def _failed(self, why: str) -> None:
        """The group is no more."""
        raise NotImplementedError

    def _instead(self) -> Part:
        """What the ranks do by themselves, as the entry says: made when it is needed."""
        if self._alone is None:
            entry = self.entry.instead
            assert entry is not None, f"{self.entry} names no fallback"
            self._alone = entry.load()(self.context, entry, self.ranks, self.dtype.name, self.op, self.tag)
        return self._alone

    def close(self) -> None:
        if self.group is not None:
            self.group.leave()
        self.group = None
        if self.renewal is not None:
            self.renewal.close()
        self.renewal = None


class Rejoining(Offloaded):
    """One whose group can be had again.  Subclasses say which."""

    kind: str
    """Of the group."""

    @property
    def members(self) -> Sequence[int]:
        """Ranks of the group."""
        return self.ranks

    @property
    def group_tag(self) -> int:
        return self.tag

    def _arguments(self) -> tuple[int, ...]:
        """Of the group."""
        raise NotImplementedError

    def _ask(self) -> int:
        return self.device.ask_group(self.kind, self.group_tag, self.members, self._args)

    def _join(self) -> None:
        """Waits until the group is open or refused."""
        self._args = self._arguments()
        self._opened(self._ask())

    def _opened(self, asked: int) -> None:
        self.group = self.device.answered(asked)
        self.fallback = self.given_up = self.group.refused
        self.by_hosts = bool(self.group.refused)

    def _renew(self) -> None:
        """The group has failed: leaves it, and asks for another."""
        assert self.group is not None
        self.group.leave()
        self.group = None
        if self.renewal is None:
            self.renewal = Renewal(self.device, self._ask)
        self.renewal.begin(self._worked)
        self._worked = False

    def _renewed(self) -> None:
        """Takes up the new group, if there is one."""
        if self.renewal is not None and self.renewal.group is not None:
            self.group, self.renewal.group = self.renewal.group, None
            self.given_up, self.by_hosts, self._note = self.group.refused, False, ""


class Lane(Rejoining):
    """A group that carries out a share of what a part asks for."""

    def __init__(self, of: OneRequest, number: int) -> None:
        self.kind, self._of, self._number = of.kind, of, number
        super().__init__(of.context, of.entry, of.ranks, of.dtype.name, of.op, of.tag)

    def setup(self) -> None:
        self.share: Sequence[Span] = ()
        self._due = 0  # requests that are under way
        self._args = self._of.arguments_of()
        self._asked = self._ask()

    @property
    def group_tag(self) -> int:
        return self.tag + self._number

    def join(self) -> None:
        """Waits until the group is open or refused."""
        self._opened(self._asked)

    def take(self, share: Sequence[Span]) -> None:
        """Carries out a share, unless the group has failed before this rank has begun."""
        self.share, self._due = share, 0
        for span in share if not self.given_up else ():
            assert self.group is not None
            self._due += 1
            self._of.post(self.group, span)

    @property
    def through(self) -> bool:
        return not self._due or bool(self.given_up)

    @property
    def noted(self) -> str:
        """How else than asked for it did its share."""
        return self._noted

    def met(self) -> bool:
        """All ranks know now whether it has failed."""
        self._worked = self._worked or not self.given_up
        return not self.given_up

    def renew(self) -> None:
        self._renew()

    def renewed(self) -> bool:
        """Whether it has another group from now on."""
        another = self.renewal is not None and self.renewal.group is not None
        self._renewed()
        self._noted = self._note
        return another

    def _done(self, record: wire.Record) -> None:
        self._due -= 1

    def _failed(self, why: str) -> None:
        self.given_up = why


class OneRequest(Offloaded):
    """One request does it all, or one in each of several groups, which share the vector among them.

    What a group that fails leaves undone, the others do.  Only when none is left, the ranks do all of it by themselves.
    Subclasses say how groups are made, what is posted, and what must come of it.
    """

    kind: str
    """Of the groups."""
    groups = 1
    unit = 1
    """Elements of which shares are whole multiples, but the last one."""

    def setup(self) -> None:
        self.vector = self.context.region("vector")
        self.result = self.context.region("result") if self.entry.ops else self.vector
        self.inputs = self.context.inputs(self.n, self.dtype.name, self.op)
        self.input = self.inputs.of(self.index)
        self.lanes = [Lane(self, number) for number in range(self.groups)]
        for lane in self.lanes:
            lane.join()
        self._gone: dict[Lane, str] = {}  # why, where no rank was still to learn of it when all last met
        self._lose([lane for lane in self.lanes if lane.given_up])
        self.fallback = self._why()
        if self.by_hosts:
            self._instead()

    def arguments_of(self) -> tuple[int, ...]:
        """Of a group."""
        raise NotImplementedError

    def post(self, group: Group, span: Span) -> None:
        """The request for these elements."""
        raise NotImplementedError

    def _wrong(self) -> int:
        """Elements of the result that are wrong."""
        raise NotImplementedError

    def _fill(self) -> None:
        data.fill(self.mine, self.input, self.start, self.device.progress)
        data.spoil(self.out, self.device.progress)

    def _lose(self, lanes: Sequence[Lane]) -> None:
        self._gone |= {lane: lane.given_up for lane in lanes}
        self.by_hosts = len(self._gone) == len(self.lanes)

    @property
    def _open(self) -> list[Lane]:
        return [lane for lane in self.lanes if lane not in self._gone]

    def _why(self) -> str:
        """Why groups are gone ("": none is)."""
        why = next(iter(self._gone.values()), "")
        return why if self.by_hosts or not why else f"{len(self._gone)} of {len(self.lanes)} trees: {why}"

    def prepare(self, size_bytes: int, variant: int) -> None:
        self.size_bytes, self.start = size_bytes, variant
        for lane in self.lanes:
            if lane.renewed():
                del self._gone[lane]
        self._lose([])
        if self.by_hosts:
            self._instead().prepare(size_bytes, variant)
            return
        self.count = size_bytes // self.input.itemsize
        self.mine = self.vector.view(self.dtype.name, 0, self.count)
        self.out = self.result.view(self.dtype.name, 0, self.count)
        self._fill()

    def work(self) -> Iterator[Wanted]:
        renewals = [lane.renewal for lane in self._gone if lane.renewal is not None]
        if self.by_hosts:
            if renewals:
                yield Sync(AGREE + self.tag, self.n)
            for renewal in renewals:
                renewal.look()
            yield from self._instead().work()
            return
        failed, left = list[Lane](), [Span(0, self.count)]
        while left and not self.by_hosts:
            asked = self._open
            for lane, share in zip(asked, self._shares(left, len(asked)), strict=True):
                lane.take(share)
            while not all(lane.through for lane in asked):
                yield None
            yield Sync(AGREE + self.tag, self.n)
            for renewal in renewals:
                renewal.look()
            renewals, now = [], [lane for lane in asked if not lane.met()]
            self._lose(now)
            left, failed = [span for lane in now for span in lane.share], failed + now
        self.fallback = self._why() or next((lane.noted for lane in self._open if lane.noted), "")
        if left:
            again = self._instead()
            again.prepare(self.size_bytes, self.start)
            yield from again.work()
        for lane in failed:
            lane.renew()

    def _shares(self, left: Sequence[Span], lanes: int) -> list[list[Span]]:
        """For each lane of what is left to do."""
        shares: list[list[Span]] = [[] for _ in range(lanes)]
        for start, stop in left:
            for share, (first, end) in zip(shares, spans(-(-(stop - start) // self.unit), lanes), strict=True):
                if first < end:
                    share.append(Span(start + first * self.unit, min(start + end * self.unit, stop)))
        return shares

    @property
    def connects(self) -> bool:
        return not self.by_hosts and all(lane.given_up for lane in self._open)

    def of_group(self, record: wire.Record) -> bool:
        return any(lane.of_group(record) for lane in self.lanes)

    def handle(self, record: wire.Record) -> None:
        for lane in self.lanes:
            if lane.of_group(record):
                lane.handle(record)
                return
        super().handle(record)

    def finish(self) -> int:
        return self._instead().finish() if self.by_hosts else self._wrong()

    def close(self) -> None:
        for lane in self.lanes:
            lane.close()
