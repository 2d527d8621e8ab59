"""Collectives of a group that NICs and switches carry out: one request at a time, in the order of the lists.

The part is the same as when it has the rank for itself (workloads/offloads/).  Here its work goes on when it has got a
record, or when all members have met.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from workloads.parts.context import Context
from workloads.parts.part import Part, Sync, Wanted
from workloads.verbs import wire
from workloads.verbs.wire import Record

_BEGIN = 3 << 29  # tags of syncs: apart from those of steps, and from those of parts that agree


@dataclass
class OffloadedCollective:
    """One collective."""

    requests: Requests
    task: int
    order: Mapping[str, Any]
    done: bool = False
    wrong: int = 0

    def start(self) -> None:
        self.requests.ask(self)

    def finish(self) -> int:
        return self.wrong

    def awaited(self) -> list[int]:
        return [rank for rank in self.requests.part.ranks if rank != self.requests.context.device.rank]


@dataclass
class Requests:
    """All that one part carries out."""

    context: Context
    part: Part
    tag: int
    orders: Sequence[tuple[int, Mapping[str, Any]]]
    variant: Callable[[Mapping[str, Any]], int]
    synced: Callable[[int, Requests], None]  # has us told when a sync with this tag is complete
    live: dict[int, OffloadedCollective] = field(default_factory=dict)
    fallbacks: dict[int, str] = field(default_factory=dict)  # task -> why the ranks did it by themselves
    met_ps: int = 0  # when its ranks have met last: the same time at all of them

    @property
    def turn(self) -> tuple[bool, int]:
        """Who goes on first, of several: whoever connects, in an order that all ranks have in common.

        Else groups that overlap could wait for each other in a circle.
        """
        return (False, self.met_ps) if self.part.connects else (True, 0)

    def prepare(self) -> None:
        """Before an iteration."""
        self.live = {task: OffloadedCollective(self, task, order) for task, order in self.orders}
        self.fallbacks = {}
        self._waiting: set[int] = set()
        self._line = iter(list(self.live.values()))
        self._now: OffloadedCollective | None = None
        self._work: Iterator[Wanted] | None = None
        self._meeting = self._awake = False
        self._next()

    def _next(self) -> None:
        """Makes ready for the next request."""
        self._now = next(self._line, None)
        if self._now is not None:
            self.part.prepare(self._now.order["size_bytes"], self.variant(self._now.order))

    def ask(self, request: OffloadedCollective) -> None:
        """A task has begun: its request goes out when those before it are done."""
        self._waiting.add(request.task)
        self._awake = True

    def owns(self, record: Record) -> bool:
        """Whether a record is this part's."""
        if record.kind in (wire.GROUPED, wire.OFFLOADED, wire.GROUP_FAILED, wire.GROUP_NOTED):
            return self.part.of_group(record)
        return record.qp in self.context.completed or record.qp in self.part.queue_pairs()

    def handle(self, record: Record) -> None:
        """Takes a record; `go_on` follows when all of this time are in."""
        self.part.handle(record)
        self._awake = True

    def computed(self, then: Callable[[], None]) -> None:
        """A reduction is through."""
        then()
        self._awake = True

    @property
    def task(self) -> int:
        """Whose request is the part's work."""
        assert self._now is not None
        return self._now.task

    def met(self, time_ps: int) -> None:
        """A sync is complete."""
        self.met_ps = time_ps
        self._meeting = False
        self._awake = True

    def go_on(self) -> list[OffloadedCollective]:
        """Takes the work as far as it comes; returns what is done."""
        done: list[OffloadedCollective] = []
        while self._awake and not self._meeting:
            self._awake = False
            now = self._now
            if self._work is None:
                if now is None or now.task not in self._waiting:
                    break
                self._work = self._begun()
            event = next(self._work, _END)
            if isinstance(event, Sync):
                self._meeting = True
                self.synced(event.tag, self)
                self.context.device.ask_sync(*event)
            elif event is _END:
                assert now is not None
                now.wrong, now.done = self.part.finish(), True
                if self.part.fallback:
                    self.fallbacks[now.task] = self.part.fallback
                done.append(now)
                self._work, self._awake = None, True
                self._next()
        return done

    def _begun(self) -> Iterator[Wanted]:
        """The part's work.  Where its ranks write to each other, nobody begins before all are ready."""
        if self.part.writes:
            yield Sync(_BEGIN + self.tag, self.part.n)
        yield from self.part.work()


_END: Any = object()
