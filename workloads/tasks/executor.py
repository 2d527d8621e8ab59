"""Carries out a rank's tasks: starts each when all that it waits for has ended, and hands every record to its owner.

All records of one time come first; then tasks start, computations before the others, each in the order of the list.  So
the order follows from emulated time and the list alone, and a computation is not held up by what the host posts at that
moment.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from heapq import heappop, heappush
from itertools import islice
from typing import Any, Protocol

from workloads.base.entry import Algorithm
from workloads.collectives.execution import Reducer, Timer
from workloads.parts import turns
from workloads.parts.context import Context
from workloads.tasks.communicator import CollectiveKind, Communicator, HostCollective
from workloads.tasks.messages import Message, Messages
from workloads.tasks.requests import OffloadedCollective, Requests
from workloads.tasks.turns import Turns
from workloads.verbs import CompletionError, FabricError, wire
from workloads.verbs.device import NO_STREAM
from workloads.verbs.wire import Record

Order = Mapping[str, Any]


class Doing(Protocol):
    """A task that has begun, or may."""

    def start(self) -> None: ...

    @property
    def done(self) -> bool: ...

    def finish(self) -> int: ...

    def awaited(self) -> list[int]: ...


@dataclass
class _Computing:
    """A task that computes."""

    executor: Executor
    task: int
    order: Order
    done: bool = False

    def start(self) -> None:
        if self.order["ns"] <= 0:
            self.done = True
        else:
            self.executor.compute(self.order["ns"], self.order["stream"], self.task, self._computed)

    def _computed(self) -> None:
        self.done = True

    def finish(self) -> int:
        return 0

    def awaited(self) -> list[int]:
        return []


@dataclass
class Span:
    """When a task ran, in ps of emulated time, and how many of its elements were wrong."""

    start_ps: int
    end_ps: int = -1
    wrong: int = 0


class Executor:
    """One rank's tasks, iteration by iteration."""

    def __init__(
        self, context: Context, step: Mapping[str, Any], tag: int, find: Callable[[str, str], Algorithm]
    ) -> None:
        """Connects with all whom the tasks need."""
        self.context, self.device, self.step, self.find = context, context.device, step, find
        self.tasks: Sequence[Order] = step["tasks"]
        self.iteration = 0
        self._kinds: dict[tuple[int, int, str, str | None], CollectiveKind] = {}
        self._followers: list[list[int]] = [[] for _ in self.tasks]
        for number, order in enumerate(self.tasks):
            for other in order["before"]:
                self._followers[other].append(number)
        of: dict[str, list[tuple[int, Order]]] = {"compute": [], "collective": [], "send": [], "recv": []}
        for number, order in enumerate(self.tasks):
            of[order["do"]].append((number, order))
        self.communicators = self._communicators(of["collective"])
        self.messages = Messages(context, step["lanes"], [*of["send"], *of["recv"]])
        self._by_pair: dict[int, Callable[[Record], HostCollective | Message | None]] = {}
        self._connect(tag)
        self._synced: dict[int, Requests] = {}
        self.requests = self._requests(of["collective"], tag)
        self._computed: dict[int, tuple[int, Callable[[], None]]] = {}
        self._streams: dict[tuple[int, int], int] = {}
        self._token = 0
        self.fallbacks: dict[int, str] = {}  # of this iteration: task -> why its ranks did it by themselves
        self.tick: Callable[[int, int], None] | None = None

    # What there is to do it with

    def _communicators(self, orders: Sequence[tuple[int, Order]]) -> dict[int, Communicator]:
        by_hosts = _grouped([o for o in orders if "slot" in o[1]], "communicator")
        plans, shared = (
            self.step["communicators"],
            (self._kind, self._reducer, self._timer, self._by_lane, self._variant),
        )
        return {c: Communicator(self.context, plans[c], own, *shared) for c, own in by_hosts}

    def _kind(self, order: Order) -> CollectiveKind:
        key = (order["way"], order["size_bytes"], order["dtype"], order["op"])
        if key not in self._kinds:
            options = self.step["ways"][order["way"]]
            entry = self.find(options["collective"], options["algorithm"])
            self._kinds[key] = CollectiveKind(entry, options, *key[1:], self.context.seed)
        return self._kinds[key]

    def _connect(self, tag: int) -> None:
        owners: list[Communicator | Messages] = [*self.communicators.values(), self.messages]
        calls = [owner.peers(tag) for owner in owners]
        pairs = iter(self.device.connect([peer for peers in calls for peer in peers]))
        for owner, peers in zip(owners, calls, strict=True):
            own = list(islice(pairs, len(peers)))
            owner.connected(own)
            self._by_pair |= {pair.number: owner.take for pair in own}

    def _requests(self, orders: Sequence[tuple[int, Order]], tag: int) -> list[Requests]:
        """In the order that all ranks have in common."""
        requests = list[Requests]()
        for number, own in _grouped([o for o in orders if "request" in o[1]], "request"):
            plan = self.step["requests"][number]
            options = self.step["ways"][plan["way"]]
            entry = self.find(options["collective"], options["algorithm"])
            context, first = self.context.beside(number, plan["most"], options), tag + plan["tag"]
            context.reducer = partial(self._reduced, len(requests))
            part = entry.load()(context, entry, options["ranks"], plan["dtype"], plan["op"], first)
            requests.append(Requests(context, part, first, own, self._variant, self._synced.__setitem__))
        return requests

    def _variant(self, order: Order) -> int:
        """Of the inputs: different for each collective, the same at all members."""
        return int(1 + order["communicator"] * 1009 + order["number"] * 31 + self.iteration * 7)

    def _reducer(self, task: int) -> Reducer:
        """Reductions of a collective keep its own stream busy, or each lane one of its own, and nothing else."""
        stream_of = self._by_lane(task)
        return lambda lane, ns, then: self.compute(ns, stream_of(lane), task, then)

    def _by_lane(self, task: int) -> Callable[[int], int]:
        """The stream of each lane."""
        stream = self.tasks[task]["stream"]
        return partial(self._beside, stream) if self.context.costs.by_channel else lambda _: stream

    def _timer(self, task: int) -> Timer:
        """Clocks of a collective's own keep nothing busy."""
        return lambda ns, then: self.compute(ns, NO_STREAM, task, then)

    def _reduced(self, number: int, lane: int, ns: float, then: Callable[[], None]) -> None:
        """Likewise those of a part."""
        its = self.requests[number]
        self._reducer(its.task)(lane, ns, partial(its.computed, then))

    def _beside(self, stream: int, lane: int) -> int:
        """The stream of a lane of the collectives on that stream: behind those of the tasks."""
        first = 1 + max(order["stream"] for order in self.tasks)
        return self._streams.setdefault((stream, lane), first + len(self._streams))

    def compute(self, ns: float, stream: int, task: int, then: Callable[[], None]) -> None:
        """Keeps a stream busy for so long, then calls."""
        if self.device.turns is None:
            self._token += 1
            number = self._token
        else:
            number = self._going_on.number()
        self._computed[number] = (task, then)
        self.device.compute(ns, wr_id=number, stream=stream)

    # The iteration

    def prepare(self, iteration: int) -> None:
        """Writes inputs and posts receives."""
        self.iteration = iteration
        self.fallbacks = {}
        left_out = self._left_out = {n for n, order in enumerate(self.tasks) if (iteration + 1) % order.get("every", 1)}
        for communicator in self.communicators.values():
            communicator.prepare()
        self.messages.prepare(iteration, left_out)
        for requests in self.requests:
            requests.prepare()
        self.device.time_ns  # noqa: B018  (posts reach the NIC before there are too many of them)
        self.spans: list[Span | None] = [None] * len(self.tasks)
        self._left = len(self.tasks) - len(left_out)
        self._waits = [len(order["before"]) for order in self.tasks]
        for number in left_out:
            for follower in self._followers[number]:
                self._waits[follower] -= 1
        self._ready: list[tuple[bool, int]] = []
        self._later: list[tuple[int, int]] = []  # ps from the begin on, task
        self._turns = Turns[int, int]()
        for number, waits in enumerate(self._waits):
            if not waits:
                self._may_start(number)
        self._active: dict[int, Doing] = {}

    def run(self) -> None:
        """Until all tasks have ended.  What ends it otherwise says which tasks were waiting for whom."""
        self._begin_ps = self.device.answered_ps
        try:
            self._start_ready()
            while self._left:
                until_ns = (self._begin_ps + self._later[0][0]) / 1000 if self._later else None
                for record in self.device.next_records(until_ns):
                    self._take(record)
                self._start_ready()
                if self.tick:
                    self.tick(len(self.tasks) - self._left, len(self.tasks))
        except CompletionError as error:
            raise Stuck(error, self.waiting(), error.status, error.peer) from error
        except FabricError as error:
            raise Stuck(error, self.waiting(), None, None) from error

    def _start_ready(self) -> None:
        """Starts what may start, until nothing more can be done before the next record."""
        going = True
        while going:
            while self._later and self._begin_ps + self._later[0][0] <= self.device.answered_ps:
                self._due(heappop(self._later)[1])
            while self._ready:
                self._start(heappop(self._ready)[1])
            if not self.requests:
                return
            in_turn = sorted(self.requests, key=lambda requests: requests.turn)
            through = [request.task for requests in in_turn for request in requests.go_on()]
            for number in sorted(through):
                self._ended(number, self.device.answered_ps)
            going = bool(through)

    def _may_start(self, number: int) -> None:
        if number in self._left_out:
            return
        if earliest := self.tasks[number].get("not_before_ns"):
            heappush(self._later, (round(earliest * 1000), number))
        else:
            self._due(number)

    def _due(self, number: int) -> None:
        heappush(self._ready, (self.tasks[number]["do"] != "compute", number))

    def _start(self, number: int) -> None:
        if self.tasks[number].get("in_turn") and not self._turns.taken(self.tasks[number]["stream"], number):
            return
        self.spans[number] = Span(self.device.answered_ps)
        doing = self._active[number] = self._doing(number, self.tasks[number])
        doing.start()
        if doing.done:
            self._ended(number, self.device.answered_ps)

    def _doing(self, number: int, order: Order) -> Doing:
        match order["do"]:
            case "compute":
                return _Computing(self, number, order)
            case "collective" if "slot" in order:
                return self.communicators[order["communicator"]].live[order["number"]]
            case "collective":
                return next(r.live[number] for r in self.requests if number in r.live)
        return self.messages.of(order)

    def _take(self, record: Record) -> None:
        if record.kind == turns.ENDED:
            self._look(self._going_on.under_way[record.wr_id].owner, record.time_ps)
        elif record.kind == wire.COMPUTED and record.wr_id not in self._computed:
            self._look(self._going_on.take(record).owner, record.time_ps)
        elif record.kind == wire.COMPUTED:
            task, then = self._computed.pop(record.wr_id)
            then()
            self._look(task, record.time_ps)
        elif record.kind == wire.SYNCED:
            self._synced.pop(record.wr_id).met(record.time_ps)
        elif record.qp in self._by_pair and record.kind in (wire.SENT, wire.RECEIVED_IMM):
            if (owner := self._by_pair[record.qp](record)) is not None:
                self._look(owner.task, record.time_ps)
        else:
            self._requests_of(record).handle(record)

    def _requests_of(self, record: Record) -> Requests:
        for requests in self.requests:
            if requests.owns(record):
                return requests
        raise FabricError(f"a record of kind {record.kind} on {record.qp}, which is no task's")

    def _look(self, number: int, time_ps: int) -> None:
        """Something has happened to a task: has it ended?"""
        if number in self._active and self._active[number].done:
            self._ended(number, time_ps)

    def _ended(self, number: int, time_ps: int) -> None:
        doing, span, order = self._active.pop(number), self.spans[number], self.tasks[number]
        assert span is not None
        span.end_ps, span.wrong = max(time_ps, span.start_ps), doing.finish()
        if isinstance(doing, HostCollective):
            self.communicators[order["communicator"]].finished(doing)
        elif isinstance(doing, OffloadedCollective) and number in doing.requests.fallbacks:
            self.fallbacks[number] = doing.requests.fallbacks[number]
        self._left -= 1
        if order.get("in_turn") and (following := self._turns.left(order["stream"])) is not None:
            self._due(following)
        for follower in self._followers[number]:
            self._waits[follower] -= 1
            if not self._waits[follower]:
                self._may_start(follower)

    @property
    def _going_on(self) -> turns.Turns:
        """Where collectives go on by themselves, if any do."""
        assert isinstance(self.device.turns, turns.Turns)
        return self.device.turns

    # What for, and for whom, it waits

    def waiting(self) -> list[tuple[int, list[int]]]:
        """Tasks that have begun, and for which ranks each waits."""
        return [(number, doing.awaited()) for number, doing in sorted(self._active.items())]

    def close(self) -> None:
        for requests in self.requests:
            requests.part.close()


def _grouped(orders: Sequence[tuple[int, Order]], key: str) -> list[tuple[int, list[tuple[int, Order]]]]:
    """Orders with the same number under `key` together, in the order of these numbers."""
    groups: dict[int, list[tuple[int, Order]]] = {}
    for number, order in orders:
        groups.setdefault(order[key], []).append((number, order))
    return sorted(groups.items())


class Stuck(FabricError):
    """The fabric has ended the session, or an operation failed, while tasks were waiting."""

    def __init__(
        self, why: FabricError, waiting: list[tuple[int, list[int]]], status: int | None, peer: int | None
    ) -> None:
        super().__init__(str(why))
        self.waiting, self.status, self.peer = waiting, status, peer
