"""What a schedule should take: every rank's lanes followed message by message (network.py carries them).

A host does one thing at a time, as the engine does (workloads/collectives/engine.py): it wakes up, takes what has
come, reduces (unless its lanes do) and posts.  So what formulas leave out is in it: siblings that share a cable, ranks
that are late.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeAlias, TypeVar

from workloads.collectives.schedule import Copy, Lane, Program, Recv, Send, Work, released
from workloads.times.case import Case
from workloads.times.network import Agenda, Network, QueuePair

H = TypeVar("H")
L = TypeVar("L", bound="Progress[Any]")


class Progress(Generic[H]):
    """How far a host has come with a lane of its schedule."""

    def __init__(self, host: H, lane: Lane) -> None:
        self.host, self.lane = host, lane
        self.steps, self.window, self.per_peer, self.clock = lane.steps, lane.window, lane.per_peer, lane.clock
        self.at = self.under_way = 0
        self.reducing = False
        self.outbox: deque[tuple[Stream[Any], int]] = deque()
        self.waiting: list[tuple[int, Any]] = []


class Stream(Generic[L]):
    """Messages from one rank to another on one channel: one direction of a connection."""

    def __init__(self, pair: QueuePair, source: int = 0) -> None:
        """`source`: whose, by index in the group.  `seen`: of what has arrived, by its lane."""
        self.pair, self.source = pair, source
        self.total = self.posted = self.acknowledged = self.under_way = self.arrived = self.seen = self.taken = 0
        self.outbox: deque[tuple[Stream[L], int]] = deque()
        self.sender: L | None = None
        self.receiver: L | None = None


_Stream: TypeAlias = "Stream[Progress[_Host]]"


class _Host:
    """A rank: its own clock, and what has come since it last looked."""

    def __init__(self, replay: Replay, index: int, program: Program) -> None:
        self.replay, self.index = replay, index
        self.clock = 0.0
        self.due: list[tuple[Callable[[Any], None], Any]] = []
        self.lanes = [Progress(self, lane) for lane in program]

    def begin(self, _: float) -> None:
        for lane in self.lanes:
            if lane.clock and lane.clock.begin_ns > 0:
                self._busy(lane, lane.clock.begin_ns, 0)
            else:
                self.advance(lane)

    def come(self, t: float, event: Callable[[Any], None], of: Any) -> None:
        if not self.due:
            self.replay.agenda.at(max(t, self.clock), self._wake)
        self.due.append((event, of))

    def _wake(self, t: float) -> None:
        due, self.due = self.due, []
        self.clock = t + self.replay.case.costs.wake_ns
        for event, of in due:
            event(of)

    def advance(self, lane: Progress[_Host]) -> None:
        going = deque([lane])
        while going:
            one = going.popleft()
            self._go_on(one)
            going.extend(released(one))

    def _go_on(self, lane: Progress[_Host]) -> None:
        """A lane's own clock goes on with its work before the host posts what it has done."""
        done: list[tuple[_Stream, int]] = []
        self._step_by_step(lane, done)
        for stream, nbytes in done:
            self._send(lane, stream, nbytes)

    def _step_by_step(self, lane: Progress[_Host], done: list[tuple[_Stream, int]]) -> None:
        case = self.replay.case
        while lane.at < len(lane.steps) and not lane.reducing:
            step = lane.steps[lane.at]
            if isinstance(step, Send):
                stream = self.replay.streams[self.index, step.peer, step.channel]
                nbytes = lane.lane.elements(step) * case.width
                if lane.clock:
                    done.append((stream, nbytes))
                else:
                    self._send(lane, stream, nbytes)
            elif isinstance(step, Recv):
                stream = self.replay.streams[step.peer, self.index, step.channel]
                if stream.seen == stream.taken:
                    return
                stream.taken += 1
                if step.reduce and self._reduces(lane, step.stop - step.start):
                    return
            elif isinstance(step, Copy):
                if step.reduce and self._reduces(lane, step.stop - step.start):
                    return
            elif isinstance(step, Work):
                assert lane.clock is not None
                self._busy(lane, lane.clock.takes_ns(step), 1)
                return
            elif (other := self.lanes[step.lane]).at < step.steps:
                other.waiting.append((step.steps, lane))
                return
            lane.at += 1

    def _send(self, lane: Progress[_Host], stream: _Stream, nbytes: int) -> None:
        limited = stream if lane.per_peer else lane
        if lane.window is not None and limited.under_way == lane.window:
            limited.outbox.append((stream, nbytes))
            return
        limited.under_way += 1
        stream.posted += 1
        self.clock += self.replay.case.costs.post_ns
        self.replay.post(self.clock, stream, nbytes, signaled=lane.window is not None)
        self.clock += self.replay.case.costs.more_posts_ns

    def _busy(self, lane: Progress[_Host], ns: float, steps: int) -> None:
        """The lane's own clock is, and then it goes on behind so many steps."""
        lane.reducing = True
        self.replay.agenda.at(self.clock + ns, self.come, self._done, (lane, steps))

    def _done(self, of: tuple[Progress[_Host], int]) -> None:
        lane, steps = of
        lane.reducing = False
        lane.at += steps
        self.advance(lane)

    def arrived(self, stream: _Stream) -> None:
        assert stream.receiver is not None
        clock = stream.receiver.clock
        if later := clock.later_ns.get(stream.source, 0.0) if clock else 0.0:
            self.replay.agenda.at(self.clock + later, self.come, self._seen, stream)
        else:
            self._seen(stream)

    def _seen(self, stream: _Stream) -> None:
        stream.seen += 1
        assert stream.receiver is not None
        self.advance(stream.receiver)

    def _reduces(self, lane: Progress[_Host], elements: int) -> bool:
        """Whether the lane does by itself, and goes on when it has: else the host has done so."""
        costs = self.replay.case.costs
        ns = 0.0 if lane.clock else costs.reduce_ns(elements * self.replay.case.width)
        if not costs.by_channel or ns <= 0:
            self.clock += ns
            return False
        lane.reducing = True
        self.replay.agenda.at(self.clock + ns, self.come, self._reduced, lane)
        return True

    def _reduced(self, lane: Progress[_Host]) -> None:
        lane.reducing = False
        lane.at += 1
        self.advance(lane)

    def acknowledged(self, stream: _Stream) -> None:
        lane = stream.sender
        assert lane is not None
        limited = stream if lane.per_peer else lane
        limited.under_way -= 1
        if limited.outbox:
            self._send(lane, *limited.outbox.popleft())


class Replay:
    """All ranks of a group, each with its program, over the network that is `made`."""

    def __init__(self, case: Case, programs: Sequence[Program], made: Callable[[Agenda], Network]) -> None:
        self.case, self.agenda = case, Agenda()
        network = self._network = made(self.agenda)
        self.hosts = [_Host(self, i, program) for i, program in enumerate(programs)]
        self.streams: dict[tuple[int, int, int], _Stream] = {}
        for host in self.hosts:
            for lane in host.lanes:
                for step in lane.steps:
                    if isinstance(step, Send):
                        key = (host.index, step.peer, step.channel)
                        stream = self.streams.get(key) or Stream(network.connect(key[:2], step.channel), host.index)
                        self.streams[key] = stream
                        stream.sender = lane
                        stream.total += 1
        for host in self.hosts:
            for lane in host.lanes:
                for step in lane.steps:
                    if isinstance(step, Recv):
                        self.streams[step.peer, host.index, step.channel].receiver = lane

    def post(self, t: float, stream: _Stream, nbytes: int, *, signaled: bool) -> None:
        assert stream.sender is not None and stream.receiver is not None
        sender, receiver = stream.sender.host, stream.receiver.host
        notify = signaled or stream.posted == stream.total
        self._network.post(
            t,
            stream.pair,
            nbytes,
            lambda at: receiver.come(at, receiver.arrived, stream),
            (lambda at: sender.come(at, sender.acknowledged, stream)) if notify else None,
        )

    def run(self, starts: Sequence[float]) -> list[float]:
        """When each rank is through, if they begin at these times."""
        for host, start in zip(self.hosts, starts, strict=True):
            host.clock = start
            self.agenda.at(start, host.begin) if start else host.begin(start)
        self.agenda.run()
        self._network.check_through()
        stuck = [lane for host in self.hosts for lane in host.lanes if lane.at < len(lane.steps) or lane.outbox]
        assert not stuck, "a schedule that does not end"
        return [host.clock for host in self.hosts]
