"""What a step of tasks should take where tasks share cables: all ranks' tasks followed message by message together.

It carries the step of the plan out as a rank's executor does (executor.py), over the network of expected times
(workloads/times/network.py): a host wakes up, takes what has come, starts what may start and posts, one thing at a
time; streams compute and reduce beside it.  There is nothing here of NICs and switches that do collectives, nor of
tasks that are left out of some iterations.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from heapq import heappop, heappush
from itertools import chain, islice
from typing import Any, TypeAlias

from workloads.base.entry import Algorithm
from workloads.base.vocabulary import DTYPES
from workloads.collectives.schedule import (
    Copy,
    Program,
    Recv,
    Send,
    Shape,
    Work,
    connections,
    program_of,
    released,
    schedule_of,
)
from workloads.collectives.shape import shape_of
from workloads.tasks.turns import Turns
from workloads.times.buffers import Buffers, Watch
from workloads.times.messages import Costs
from workloads.times.network import Agenda, Network, QueuePair
from workloads.times.pausing import PausingNetwork
from workloads.times.queue_pairs import Call, Flow
from workloads.times.replay import Progress, Stream
from workloads.times.ways import Ways

MOST_MESSAGES = 100_000
"""That are followed: some 100 us of ours each."""

_TRAINS = 60_000

Order = Mapping[str, Any]
Find = Callable[[str, str], Algorithm]
_Members = frozenset[int]


class Tasks:
    """A step of the plan (program.py): its messages, by the programs of its collectives."""

    def __init__(self, step: Mapping[str, Any], find: Find, seed: int) -> None:
        self._step, self._find, self._seed = step, find, seed
        self.orders: dict[int, Sequence[Order]] = {int(rank): orders for rank, orders in step["tasks"].items()}
        self._kinds: dict[tuple[Any, ...], tuple[list[int], Sequence[Program], int]] = {}

    @property
    def followable(self) -> bool:
        """Whether hosts do all of it, the same in every iteration."""
        orders = chain.from_iterable(self.orders.values())
        return not any("request" in order or order.get("every", 1) > 1 for order in orders)

    def kind(self, order: Order) -> tuple[list[int], Sequence[Program], int]:
        """Of a collective: its ranks in its order, their programs, bytes of an element."""
        key = order["way"], order["size_bytes"], order["dtype"]
        if key not in self._kinds:
            way, width = self._step["ways"][order["way"]], DTYPES[order["dtype"]]
            entry, ranks = self._find(way["collective"], way["algorithm"]), way["ranks"]
            shape: Shape = shape_of(entry, len(ranks), order["size_bytes"], width, way, self._seed)
            programs = [program_of(schedule_of(entry), shape, index) for index in range(len(ranks))]
            self._kinds[key] = ranks, programs, width
        return self._kinds[key]

    def tag(self, order: Order) -> int:
        """What tells the connections of a group, or of a traffic class, from others."""
        owner = "communicators" if order["do"] == "collective" else "lanes"
        return int(self._step[owner][order["communicator" if order["do"] == "collective" else "lane"]]["tag"])

    def calls(self) -> dict[int, list[Call]]:
        """What each rank connects, in its executor's order: group by group, then for messages."""
        return {rank: self._calls_of(rank) for rank in self.orders}

    def _calls_of(self, rank: int) -> list[Call]:
        groups: dict[int, set[Call]] = {}
        messages: set[tuple[int, int, int]] = set()
        for order in _unlike(self.orders[rank]):
            if order["do"] == "collective":
                ranks, programs, _ = self.kind(order)
                for peer, channel in connections(programs[ranks.index(rank)]):
                    groups.setdefault(order["communicator"], set()).add((ranks[peer], self.tag(order) + channel))
            else:
                messages.add((order["peer"], order["lane"], self.tag(order)))
        calls = [call for _, own in sorted(groups.items()) for call in sorted(own)]
        return calls + [(peer, tag) for peer, _, tag in sorted(messages)]

    def _sends(self, rank: int, orders: Iterable[Order]) -> Iterator[tuple[Flow, int, _Members]]:
        """Messages: their flow, their bytes, and who takes part in what they belong to."""
        for order in orders:
            if order["do"] == "send":
                yield (rank, order["peer"], self.tag(order)), order["size_bytes"], frozenset((rank, order["peer"]))
            elif order["do"] == "collective":
                ranks, programs, width = self.kind(order)
                members = frozenset(ranks)
                for lane in programs[ranks.index(rank)]:
                    for step in lane.steps:
                        if isinstance(step, Send):
                            flow = rank, ranks[step.peer], self.tag(order) + step.channel
                            yield flow, lane.elements(step) * width, members

    def share(self, ways: Ways) -> bool:
        """Whether tasks of which no rank does both use the same cable in the same direction."""
        users: dict[Hashable, list[_Members]] = {}
        sends = (sent for rank, orders in self.orders.items() for sent in self._sends(rank, _unlike(orders)))
        for (a, b, channel), members in dict.fromkeys((flow, members) for flow, _, members in sends):
            for key in ways.route((a, b), channel).keys:
                others = users.setdefault(key, [])
                if members not in others:
                    if any(members.isdisjoint(other) for other in others):
                        return True
                    others.append(members)
        return False

    def replayed(self, ways: Ways, costs: Costs, buffers: Buffers | None = None) -> float | None:
        """Time in ns, over `ways` of all ranks of the fabric; None where it is not followed.

        `buffers`: who would be paused is noted.
        """
        sends = (sent for rank, orders in self.orders.items() for sent in self._sends(rank, orders))
        sizes = [nbytes for _, nbytes, _ in islice(sends, MOST_MESSAGES + 1)]
        if len(sizes) > MOST_MESSAGES:
            return None
        packets = sum(map(costs.packets, sizes))
        watch, train = Watch(buffers.rooms) if buffers else None, max(1, -(-packets // _TRAINS))
        time_ns = _Replay(self, costs, lambda agenda: Network(agenda, ways, costs, train, watch)).run()
        if buffers and watch:
            paused = watch.paused()
            buffers.paused.update(paused)
            if any(paused.values()):
                rooms = buffers.rooms
                time_ns = _Replay(self, costs, lambda agenda: PausingNetwork(agenda, ways, costs, packets, rooms)).run()
        return time_ns


def _unlike(orders: Sequence[Order]) -> list[Order]:
    """Of messages and collectives that go the same way one each."""
    first: dict[tuple[Any, ...], Order] = {}
    for order in orders:
        if order["do"] == "collective":
            first.setdefault((order["communicator"], order["way"], order["size_bytes"], order["dtype"]), order)
        elif order["do"] != "compute":
            first.setdefault((order["do"], order["peer"], order["lane"]), order)
    return list(first.values())


_Lane: TypeAlias = "Progress[_Doing]"
_Stream: TypeAlias = "Stream[Progress[_Doing]]"


class _Doing:
    """A rank's side of a collective."""

    def __init__(self, rank: _Rank, number: int, order: Order) -> None:
        self.rank, self.number, self.order = rank, number, order
        self.key = order["communicator"], order["number"]
        self.tag = rank.replay.tasks.tag(order)
        self.ranks, programs, self.width = rank.replay.tasks.kind(order)
        self.index = self.ranks.index(rank.me)
        self.lanes: list[_Lane] = [Progress(self, lane) for lane in programs[self.index]]
        self.outgoing: dict[tuple[int, int], _Stream] = {}
        self.running = False
        for lane in self.lanes:
            for step in lane.steps:
                if isinstance(step, Send):
                    stream = self._stream(rank.me, self.ranks[step.peer], step.channel)
                    self.outgoing[step.peer, step.channel] = stream
                    stream.sender = lane
                    stream.total += 1
                elif isinstance(step, Recv):
                    self._stream(self.ranks[step.peer], rank.me, step.channel).receiver = lane

    def _stream(self, a: int, b: int, channel: int) -> _Stream:
        return self.rank.replay.stream(self.key, (a, b, self.tag + channel), self.ranks.index(a))

    def start(self) -> None:
        self.running = True
        for lane in self.lanes:
            if lane.clock and lane.clock.begin_ns > 0:
                self._busy(lane, lane.clock.begin_ns, 0)
            else:
                self.advance(lane)

    @property
    def done(self) -> bool:
        through = all(lane.at == len(lane.steps) and not lane.outbox for lane in self.lanes)
        return through and all(stream.acknowledged == stream.total for stream in self.outgoing.values())

    def advance(self, lane: _Lane) -> None:
        going = deque([lane])
        while going:
            one = going.popleft()
            self._go_on(one)
            going.extend(released(one))

    def _go_on(self, lane: _Lane) -> None:
        """A lane's own clock goes on with its work before the host posts what it has done."""
        done: list[tuple[_Stream, int]] = []
        self._step_by_step(lane, done)
        for stream, nbytes in done:
            self.send(lane, stream, nbytes)

    def _step_by_step(self, lane: _Lane, done: list[tuple[_Stream, int]]) -> None:
        while lane.at < len(lane.steps) and not lane.reducing:
            step = lane.steps[lane.at]
            if isinstance(step, Send):
                stream, nbytes = self.outgoing[step.peer, step.channel], lane.lane.elements(step) * self.width
                if lane.clock:
                    done.append((stream, nbytes))
                else:
                    self.send(lane, stream, nbytes)
            elif isinstance(step, Recv):
                stream = self._stream(self.ranks[step.peer], self.rank.me, step.channel)
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

    def _busy(self, lane: _Lane, ns: float, more: int) -> None:
        """The lane's own clock is, and then it goes on behind so many steps."""
        lane.reducing = True
        self.rank.later(ns, lambda: self._through(lane, more))

    def arrived(self, stream: _Stream) -> None:
        """Its lane sees it, at once or later."""
        stream.arrived += 1
        clock = stream.receiver.clock if stream.receiver else None
        if later := clock.later_ns.get(stream.source, 0.0) if clock else 0.0:
            self.rank.later(later, lambda: self._seen(stream))
        else:
            self._seen(stream)

    def _seen(self, stream: _Stream) -> None:
        stream.seen += 1
        if self.running and stream.receiver:
            self.advance(stream.receiver)
            self.rank.look(self.number)

    def _reduces(self, lane: _Lane, elements: int) -> bool:
        """Whether the lane must wait until a stream has."""
        ns = 0.0 if lane.clock else self.rank.replay.costs.reduce_ns(elements * self.width)
        if ns > 0:
            lane.reducing = True
            own = self.lanes.index(lane) if self.rank.replay.costs.by_channel else None
            self.rank.compute(ns, (self.order["stream"], own), lambda: self._through(lane, 1))
        return ns > 0

    def _through(self, lane: _Lane, more: int) -> None:
        lane.reducing = False
        lane.at += more
        self.advance(lane)
        self.rank.look(self.number)

    def send(self, lane: _Lane, stream: _Stream, nbytes: int) -> None:
        limited = stream if lane.per_peer else lane
        if lane.window is not None and limited.under_way == lane.window:
            limited.outbox.append((stream, nbytes))
            return
        limited.under_way += 1
        stream.posted += 1
        self.rank.post(stream, nbytes, signaled=lane.window is not None or stream.posted == stream.total)

    def acknowledged(self, stream: _Stream, lane: _Lane) -> None:
        if lane.window is None:  # only the last one is signaled
            stream.acknowledged = stream.total
        else:
            stream.acknowledged += 1
        limited = stream if lane.per_peer else lane
        limited.under_way -= 1
        if limited.outbox:
            self.send(lane, *limited.outbox.popleft())


class _Rank:
    """What a rank's executor does."""

    def __init__(self, replay: _Replay, me: int, orders: Sequence[Order]) -> None:
        self.replay, self.me, self.orders = replay, me, orders
        self.clock = 0.0
        self._due: list[Callable[[], None]] = []
        self._streams: dict[tuple[int, int | None], float] = {}  # and lanes: when each has computed what it was given
        self._ready: list[tuple[bool, int]] = []
        self._turns = Turns[int, int]()
        self._active: dict[int, Callable[[], bool]] = {}
        self._delivered: set[int] = set()  # messages of ours that are acknowledged, or have arrived
        self._waits = [len(order["before"]) for order in orders]
        self._followers: list[list[int]] = [[] for _ in orders]
        for number, order in enumerate(orders):
            for other in order["before"]:
                self._followers[other].append(number)
        self.left = len(orders)
        self._doing = {n: _Doing(self, n, order) for n, order in enumerate(orders) if order["do"] == "collective"}
        for number, order in enumerate(orders):
            if order["do"] in ("send", "recv"):
                a, b = (me, order["peer"]) if order["do"] == "send" else (order["peer"], me)
                replay.ends.setdefault((a, b, order["lane"], order["number"]), {})[order["do"]] = self, number

    def begin(self, _: float) -> None:
        for number, waits in enumerate(self._waits):
            if not waits:
                self._may_start(number)
        self._start_ready()

    def come(self, t: float, event: Callable[[], None]) -> None:
        """The host handles the event when it next wakes."""
        if not self._due:
            self.replay.agenda.at(max(t, self.clock), self._wake)
        self._due.append(event)

    def _wake(self, t: float) -> None:
        due, self._due = self._due, []
        self.clock = t + self.replay.costs.wake_ns
        for event in due:
            event()
        self._start_ready()

    def _may_start(self, number: int) -> None:
        order = self.orders[number]
        earliest = order.get("not_before_ns", 0.0)
        if earliest > self.clock:
            self.replay.agenda.at(earliest, self._due_at, number)
        else:
            heappush(self._ready, (order["do"] != "compute", number))

    def _due_at(self, t: float, number: int) -> None:
        self.clock = max(self.clock, t)
        heappush(self._ready, (self.orders[number]["do"] != "compute", number))
        self._start_ready()

    def _start_ready(self) -> None:
        while self._ready:
            self._start(heappop(self._ready)[1])

    def _start(self, number: int) -> None:
        order = self.orders[number]
        if order.get("in_turn") and not self._turns.taken(order["stream"], number):
            return
        if order["do"] == "compute":
            if order["ns"] <= 0:
                self._ended(number)
            else:
                self.compute(order["ns"], (order["stream"], None), lambda: self._ended(number))
            return
        if order["do"] == "collective":
            doing = self._doing[number]
            self._active[number] = lambda: doing.done
            doing.start()
        else:
            self._active[number] = lambda: number in self._delivered
            if order["do"] == "send":
                self._send(number, order)
        self.look(number)

    def look(self, number: int) -> None:
        """Has it ended?"""
        if number in self._active and self._active[number]():
            del self._active[number]
            self._ended(number)

    def _ended(self, number: int) -> None:
        self.left -= 1
        order = self.orders[number]
        if order.get("in_turn") and (following := self._turns.left(order["stream"])) is not None:
            self._may_start(following)
        for follower in self._followers[number]:
            self._waits[follower] -= 1
            if not self._waits[follower]:
                self._may_start(follower)

    def later(self, ns: float, then: Callable[[], None]) -> None:
        """Calls when so much time has passed, whatever else goes on."""
        self.replay.agenda.at(self.clock + ns, self.come, then)

    def compute(self, ns: float, stream: tuple[int, int | None], then: Callable[[], None]) -> None:
        through = self._streams[stream] = max(self._streams.get(stream, 0.0), self.clock) + ns
        self.replay.agenda.at(through, self.come, then)

    def _send(self, number: int, order: Order) -> None:
        flow = self.me, order["peer"], self.replay.tasks.tag(order)
        other, receive = self.replay.ends[self.me, order["peer"], order["lane"], order["number"]]["recv"]
        self.clock += self.replay.costs.post_ns
        self.replay.network.post(
            self.clock,
            self.replay.pair(flow),
            order["size_bytes"],
            lambda t: other.come(t, lambda: other.delivered(receive)),
            lambda t: self.come(t, lambda: self.delivered(number)),
        )
        self.clock += self.replay.costs.more_posts_ns

    def delivered(self, number: int) -> None:
        """A message has arrived, or is acknowledged."""
        self._delivered.add(number)
        self.look(number)

    def post(self, stream: _Stream, nbytes: int, *, signaled: bool) -> None:
        """A message of a collective."""
        sender, receiver = stream.sender, stream.receiver
        assert sender is not None and receiver is not None
        other = receiver.host

        def acknowledged() -> None:
            sender.host.acknowledged(stream, sender)
            self.look(sender.host.number)

        self.clock += self.replay.costs.post_ns
        self.replay.network.post(
            self.clock,
            stream.pair,
            nbytes,
            lambda t: other.rank.come(t, lambda: other.arrived(stream)),
            (lambda t: self.come(t, acknowledged)) if signaled else None,
        )
        self.clock += self.replay.costs.more_posts_ns


class _Replay:
    def __init__(self, tasks: Tasks, costs: Costs, made: Callable[[Agenda], Network]) -> None:
        self.tasks, self.costs, self.agenda = tasks, costs, Agenda()
        self.network = made(self.agenda)
        self._pairs: dict[Flow, QueuePair] = {}
        self._streams: dict[tuple[tuple[int, int], Flow], _Stream] = {}
        self.ends: dict[tuple[int, int, int, int], dict[str, tuple[_Rank, int]]] = {}
        self._ranks = [_Rank(self, me, orders) for me, orders in tasks.orders.items()]

    def pair(self, flow: Flow) -> QueuePair:
        """All collectives of a group, and all messages of a traffic class, share a connection."""
        if flow not in self._pairs:
            self._pairs[flow] = self.network.connect(flow[:2], flow[2])
        return self._pairs[flow]

    def stream(self, of: tuple[int, int], flow: Flow, source: int) -> _Stream:
        """What a collective sends on a connection; `source`: whose, by index in the group."""
        if (of, flow) not in self._streams:
            self._streams[of, flow] = Stream(self.pair(flow), source)
        return self._streams[of, flow]

    def run(self) -> float:
        for rank in self._ranks:
            rank.begin(0.0)
        self.agenda.run()
        assert not any(rank.left for rank in self._ranks), "tasks that do not end"
        return max((rank.clock for rank in self._ranks), default=0.0)
