"""What a schedule should take: every rank's lanes followed message by message (network.py carries them).

A host does one thing at a time, as the engine does (workloads/collectives/engine.py): it wakes up, takes what has
come, reduces (unless its lanes do) and posts.  So what formulas leave out is in it: siblings that share a cable, ranks
that are late.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from hashlib import blake2b
from typing import Any, Generic, TypeAlias, TypeVar, cast

from topologies.ranks.hops import Hop
from workloads.collectives.schedule import (
    Copy,
    Lane,
    Program,
    Recv,
    Schedule,
    Send,
    Shape,
    program_of,
    released,
    steps,
)
from workloads.times.buffers import Buffers, Room, Watch
from workloads.times.case import Case
from workloads.times.messages import Link
from workloads.times.network import Agenda, Network, QueuePair
from workloads.times.pausing import PausingNetwork

MOST_MESSAGES = 20_000
"""That are followed: some 50 us of ours each.  A schedule of more is left to its formula."""

_TRAINS, _TRAINS_IN_TURNS = 12_000, 100_000
"""Of packets, at most: more where classes take turns packet by packet, which decides who of a group is late."""
_PIECES = 32  # to a rank: where there are more, each takes as long as those between half of them and all


H = TypeVar("H")
L = TypeVar("L", bound="Progress[Any]")


class Progress(Generic[H]):
    """How far a host has come with a lane of its schedule."""

    def __init__(self, host: H, lane: Lane) -> None:
        self.host, self.steps, self.window, self.per_peer = host, lane.steps, lane.window, lane.per_peer
        self.at = self.under_way = 0
        self.reducing = False
        self.outbox: deque[tuple[Stream[Any], int]] = deque()
        self.waiting: list[tuple[int, Any]] = []


class Stream(Generic[L]):
    """Messages from one rank to another on one channel: one direction of a connection."""

    def __init__(self, pair: QueuePair) -> None:
        self.pair = pair
        self.total = self.posted = self.acknowledged = self.under_way = self.arrived = self.taken = 0
        self.outbox: deque[tuple[Stream[L], int]] = deque()
        self.sender: L | None = None
        self.receiver: L | None = None


_Stream: TypeAlias = "Stream[Progress[_Host]]"


class _Host:
    """A rank: its own clock, and what has come since it last looked."""

    def __init__(self, replay: _Replay, index: int, program: Program) -> None:
        self.replay, self.index = replay, index
        self.clock = 0.0
        self.due: list[tuple[Callable[[Any], None], Any]] = []
        self.lanes = [Progress(self, lane) for lane in program]

    def begin(self, _: float) -> None:
        for lane in self.lanes:
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
        case = self.replay.case
        while lane.at < len(lane.steps) and not lane.reducing:
            step = lane.steps[lane.at]
            if isinstance(step, Send):
                stream = self.replay.streams[self.index, step.peer, step.channel]
                self._send(lane, stream, (step.stop - step.start) * case.width)
            elif isinstance(step, Recv):
                stream = self.replay.streams[step.peer, self.index, step.channel]
                if stream.arrived == stream.taken:
                    return
                stream.taken += 1
                if step.reduce and self._reduces(lane, step.stop - step.start):
                    return
            elif isinstance(step, Copy):
                if step.reduce and self._reduces(lane, step.stop - step.start):
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

    def arrived(self, stream: _Stream) -> None:
        stream.arrived += 1
        assert stream.receiver is not None
        self.advance(stream.receiver)

    def _reduces(self, lane: Progress[_Host], elements: int) -> bool:
        """Whether the lane does by itself, and goes on when it has: else the host has done so."""
        costs = self.replay.case.costs
        ns = costs.reduce_ns(elements * self.replay.case.width)
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


class _Replay:
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
                        stream = self.streams.get(key) or Stream(network.connect(key[:2], step.channel))
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


def replayed(
    case: Case, schedule: Schedule, most_messages: float = MOST_MESSAGES, buffers: Buffers | None = None
) -> float | None:
    """Time in ns; None where there are more messages to follow than that.  `buffers`: who would be paused is noted."""
    shape, limit = case.shape, _PIECES * case.n
    pieces = -(-shape.count // shape.chunk) if shape.chunk else 1
    if shape.chunk and pieces > limit and not _own(schedule):
        half, full = (
            _followed(case, schedule, replace(shape, count=n * shape.chunk), most_messages, buffers)
            for n in (limit // 2, limit)
        )
        if half is None or full is None:
            return None
        return full + (pieces - limit) * (full - half) / (limit - limit // 2)
    return _followed(case, schedule, shape, most_messages, buffers)


def _own(schedule: Schedule) -> str | None:
    """What tells a user's schedule (workloads/own/) from others.  Its pieces need not be alike."""
    return cast("str | None", getattr(schedule, "identity", None))


def replayed_ends(case: Case, schedule: Schedule, starts: Sequence[float]) -> list[float] | None:
    """When each rank of a group is through, if they begin at these times; None as above.

    A rank that begins late has what came before at once.
    """
    return _ends(case, schedule, case.shape, MOST_MESSAGES, starts)


def _followed(
    case: Case, schedule: Schedule, shape: Shape, most_messages: float, buffers: Buffers | None
) -> float | None:
    ends = _ends(case, schedule, shape, most_messages, [0.0] * shape.ranks, buffers)
    return None if ends is None else max(ends)


def _ends(
    case: Case,
    schedule: Schedule,
    shape: Shape,
    most_messages: float,
    starts: Sequence[float],
    buffers: Buffers | None = None,
) -> list[float] | None:
    programs, messages, packets = [], 0, 0
    sends: set[tuple[int, int, int]] = set()
    for index in range(shape.ranks):
        programs.append(program_of(schedule, shape, index))
        for step in steps(programs[-1]):
            if isinstance(step, Send):
                messages += 1
                sends.add((index, step.peer, step.channel))
                packets += case.costs.packets((step.stop - step.start) * case.width)
        if messages > most_messages:
            return None
    like, names = _likeness(case, schedule, shape, starts, sorted(sends), buffers)
    if like not in _ENDED:
        if len(_ENDED) == _MOST_KNOWN:
            del _ENDED[next(iter(_ENDED))]
        _ENDED[like] = _run(case, programs, packets, starts, names, buffers)
    ends, paused = _ENDED[like]
    if buffers:
        buffers.paused.update({cast(Hop, names[k]): held for k, held in paused})
    return list(ends)


def _run(
    case: Case,
    programs: Sequence[Program],
    packets: int,
    starts: Sequence[float],
    names: Sequence[Hashable],
    buffers: Buffers | None,
) -> tuple[tuple[float, ...], tuple[tuple[int, bool], ...]]:
    """With pauses only where they hold something up: elsewhere it would be the same."""
    ways = {(i, s.peer, s.channel) for i, program in enumerate(programs) for s in steps(program) if isinstance(s, Send)}
    turns = any(any(case.ways.route(way[:2], way[2]).second) for way in ways)
    train = max(1, -(-packets // (_TRAINS_IN_TURNS if turns else _TRAINS)))
    watch = Watch(buffers.rooms) if buffers else None
    ends = _Replay(case, programs, lambda agenda: Network(agenda, case.ways, case.costs, train, watch)).run(starts)
    paused = watch.paused() if watch else {}
    if buffers and any(paused.values()):
        its = buffers
        ends = _Replay(case, programs, lambda agenda: PausingNetwork(agenda, case.ways, case.costs, packets, its)).run(
            starts
        )
    return tuple(ends), tuple((names.index(hop), held) for hop, held in paused.items())


_ENDED: dict[bytes, tuple[tuple[float, ...], tuple[tuple[int, bool], ...]]] = {}
"""When ranks are through, and which of the links, by when they occur first, lead to buffers that pause (buffers.py)."""
_MOST_KNOWN = 4096


def _likeness(
    case: Case,
    schedule: Schedule,
    shape: Shape,
    starts: Sequence[float],
    sends: Sequence[tuple[int, int, int]],
    buffers: Buffers | None,
) -> tuple[bytes, list[Hashable]]:
    """The same where a replay can only give the same: groups whose links are alike, and shared alike, take as long.

    So a job of thousands of groups has few to follow.  A link counts by when it occurs first, whatever its name; where
    there are `buffers`, so do the nodes.  And the links.
    """
    names: dict[Hashable, int] = {}
    links: dict[Link, int] = {}
    ways: dict[tuple[Any, ...], int] = {}
    routes = []
    for a, b, channel in sends:
        for pair in ((a, b), (b, a)):  # acknowledgements go back
            route = case.ways.route(pair, channel)
            keys = tuple([names.setdefault(key, len(names)) for key in route.keys])
            path = tuple([links.setdefault(link, len(links)) for link in route.links])
            way = path, route.path.switch_latency_ns, route.scale_up, route.second
            routes.append((pair, channel, keys, ways.setdefault(way, len(ways))))
    which = _own(schedule) or (schedule.__module__, schedule.__qualname__)
    parameters = which, shape, case.width, case.costs, tuple(starts), list(links)
    buffer_rooms = _rooms(cast("Sequence[Hop]", list(names)), buffers) if buffers else None
    return blake2b(repr((parameters, list(ways), routes, buffer_rooms)).encode(), digest_size=16).digest(), list(names)


def _rooms(hops: Sequence[Hop], buffers: Buffers) -> list[tuple[int, Room | None]]:
    """Where each link leads."""
    nodes: dict[str, int] = {}
    return [(nodes.setdefault(node, len(nodes)), buffers.rooms.get(node)) for _, node in hops]
