"""What all offloaded collectives share: a group, its completions, and a fallback to the hosts.

`OneRequest` is for those whose result goes beside the input, so that the ranks can do it all again by themselves: when
the group is refused, before anything is sent; when it fails, once all have agreed on that.  They agree at the end, at
no cost: a rank that has its result must not go on while another lacks some.  If a group fails before one of its ranks
has begun, that rank posts nothing and meets the others where they agree.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from workloads.base import data
from workloads.parts.part import Part, Sync, Wanted
from workloads.verbs import FabricError, Group, Region, wire

_AGREE = 1 << 30  # tags of syncs: apart from those of steps


class Offloaded(Part):
    """One rank's part: a member of a group.  Subclasses say what follows when a request is done, or the group fails."""

    group: Group | None = None
    _alone: Part | None = None

    def handle(self, record: wire.Record) -> None:
        if record.kind == wire.OFFLOADED:
            self._done(record)
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


class OneRequest(Offloaded):
    """One request does it all.  Subclasses say how the group is made, what is posted, and what must come of it."""

    def setup(self) -> None:
        self.vector = self.context.region("vector")
        self.result = self.context.region("result") if self.entry.ops else self.vector
        self.inputs = self.context.inputs(self.n, self.dtype.name, self.op)
        self.input = self.inputs.of(self.index)
        self.group = self._join()
        self.fallback = self.given_up = self.group.refused
        self.by_hosts = bool(self.group.refused)
        if self.by_hosts:
            self._instead()

    def _join(self) -> Group:
        raise NotImplementedError

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
        if self.by_hosts:
            self._instead().prepare(size_bytes, variant)
            return
        self.count = size_bytes // self.input.itemsize
        self.mine = self.vector.view(self.dtype.name, 0, self.count)
        self.out = self.result.view(self.dtype.name, 0, self.count)
        self._fill()

    def work(self) -> Iterator[Wanted]:
        if self.by_hosts:
            yield from self._instead().work()
            return
        self._through = not self.count
        if self.count and not self.given_up:
            self._post()
        while not self._through and not self.given_up:
            yield None
        yield Sync(_AGREE + self.tag, self.n)
        if self.given_up:
            self.fallback, self.by_hosts = self.given_up, True
            again = self._instead()
            again.prepare(self.size_bytes, self.start)
            yield from again.work()

    @property
    def connects(self) -> bool:
        return bool(self.given_up) and not self.by_hosts

    def _done(self, record: wire.Record) -> None:
        self._through = True

    def _failed(self, why: str) -> None:
        self.given_up = why

    def finish(self) -> int:
        return self._instead().finish() if self.by_hosts else self._wrong()
