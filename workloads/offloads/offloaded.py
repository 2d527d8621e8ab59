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

    def _join(self) -> None:
        """Waits until the group is open or refused."""
        self._args = self._arguments()
        self.group = self.device.group(self.kind, self.group_tag, self.members, self._args)
        self.fallback = self.given_up = self.group.refused
        self.by_hosts = bool(self.group.refused)

    def _renew(self) -> None:
        """The group has failed: leaves it, and asks for another."""
        assert self.group is not None
        self.group.leave()
        self.group = None
        if self.renewal is None:
            self.renewal = Renewal(
                self.device, lambda: self.device.ask_group(self.kind, self.group_tag, self.members, self._args)
            )
        self.renewal.begin(self._worked)
        self._worked = False

    def _renewed(self) -> None:
        """Takes up the new group, if there is one."""
        if self.renewal is not None and self.renewal.group is not None:
            self.group, self.renewal.group = self.renewal.group, None
            self.given_up, self.by_hosts, self._note = self.group.refused, False, ""


class OneRequest(Rejoining):
    """One request does it all.  Subclasses say how the group is made, what is posted, and what must come of it."""

    def setup(self) -> None:
        self.vector = self.context.region("vector")
        self.result = self.context.region("result") if self.entry.ops else self.vector
        self.inputs = self.context.inputs(self.n, self.dtype.name, self.op)
        self.input = self.inputs.of(self.index)
        self._join()
        if self.by_hosts:
            self._instead()

    def _post(self) -> None:
        """The one request, of `count` elements."""
        raise NotImplementedError

    def _wrong(self) -> int:
        """Elements of the result that are wrong."""
        raise NotImplementedError

    def _fill(self) -> None:
        data.fill(self.mine, self.input, self.start, self.device.progress)
        data.spoil(self.out, self.device.progress)

    def prepare(self, size_bytes: int, variant: int) -> None:
        self.size_bytes, self.start = size_bytes, variant
        self._renewed()
        if self.by_hosts:
            self._instead().prepare(size_bytes, variant)
            return
        self.count = size_bytes // self.input.itemsize
        self.mine = self.vector.view(self.dtype.name, 0, self.count)
        self.out = self.result.view(self.dtype.name, 0, self.count)
        self._fill()

    def work(self) -> Iterator[Wanted]:
        if self.by_hosts:
            if self.renewal is not None:
                yield Sync(AGREE + self.tag, self.n)
                self.renewal.look()
            yield from self._instead().work()
            return
        self._through, self._noted = not self.count, self._note
        if self.count and not self.given_up:
            self._post()
        while not self._through and not self.given_up:
            yield None
        yield Sync(AGREE + self.tag, self.n)
        self.fallback = self._noted
        self._worked = self._worked or not self.given_up
        if self.given_up:
            self.fallback, self.by_hosts = self.given_up, True
            again = self._instead()
            again.prepare(self.size_bytes, self.start)
            yield from again.work()
            self._renew()

    @property
    def connects(self) -> bool:
        return bool(self.given_up) and not self.by_hosts

    def _done(self, record: wire.Record) -> None:
        self._through = True

    def _failed(self, why: str) -> None:
        self.given_up = why

    def finish(self) -> int:
        return self._instead().finish() if self.by_hosts else self._wrong()
