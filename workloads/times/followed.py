"""A schedule's time, and the rough ones that say sooner that it cannot be less.

Rough is what the busiest cable's bytes take, and every message alone; finer is it with all messages in each other's
way, in trains of packets; last come pauses, where they hold something up.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from typing import Any, cast

from topologies.ranks.hops import Hop
from workloads.collectives.schedule import Program, Schedule, Send, program_of
from workloads.times.buffers import Buffers, Room, Watch
from workloads.times.case import Case
from workloads.times.messages import Link
from workloads.times.network import Agenda, Alone, Network
from workloads.times.pausing import PausingNetwork
from workloads.times.replay import Replay
from workloads.times.ways import Route

_TRAINS, _TRAINS_IN_TURNS = 12_000, 100_000
"""Of packets, at most: more where classes take turns packet by packet, which decides who of a group is late."""
_LITTLE = 20_000  # times that a train comes to a link or a PCIe
_OF_A_MESSAGE = 12  # as many of these take as long as a message as a whole

_Connection = tuple[int, int, int]  # from, to, channel
_Watched = tuple[tuple[float, ...], tuple[tuple[int, bool], ...]]


@dataclass(frozen=True)
class Followed:
    """A schedule in one shape: every rank's program, and the packets and bytes of each connection.

    `starts`: when each rank begins.  `buffers`: who would be paused is noted there.
    """

    case: Case
    schedule: Schedule
    programs: Sequence[Program]
    messages: int
    carried: Mapping[_Connection, Sequence[int]]
    starts: Sequence[float]
    buffers: Buffers | None

    @classmethod
    def of(
        cls, case: Case, schedule: Schedule, most_messages: float, starts: Sequence[float], buffers: Buffers | None
    ) -> Followed | None:
        """None where there are more messages than that."""
        programs, messages = [], 0
        carried: dict[_Connection, list[int]] = {}
        for index in range(case.n):
            programs.append(program_of(schedule, case.shape, index))
            for lane, step in ((its, step) for its in programs[-1] for step in its.steps):
                if isinstance(step, Send):
                    messages += 1
                    nbytes = lane.elements(step) * case.width
                    its = carried.setdefault((index, step.peer, step.channel), [0, 0])
                    its[0] += case.costs.packets(nbytes)
                    its[1] += nbytes
            if messages > most_messages:
                return None
        return cls(case, schedule, programs, messages, carried, starts, buffers)

    @cached_property
    def routes(self) -> dict[_Connection, Route]:
        """There and back."""
        back = ((b, a, channel) for a, b, channel in self.carried)
        return {(a, b, channel): self.case.ways.route((a, b), channel) for a, b, channel in {*self.carried, *back}}

    @cached_property
    def loads(self) -> dict[Hashable, tuple[float, Link]]:
        """What each cable carries in a direction, without headers of messages, and the cable."""
        loads: dict[Hashable, tuple[float, Link]] = {}
        around = self.case.costs.frame_bytes + self.case.costs.later_reth
        for connection, (packets, nbytes) in self.carried.items():
            route = self.routes[connection]
            for key, link in zip(route.keys, route.links, strict=True):
                loads[key] = (loads.get(key, (0.0, link))[0] + nbytes + packets * around, link)
        return loads

    @cached_property
    def packets(self) -> int:
        return sum(packets for packets, _ in self.carried.values())

    @cached_property
    def turns(self) -> bool:
        """Whether two classes meet on a cable."""
        classes: dict[Hashable, bool] = {}
        routes = [route for connection in self.carried if (route := self.routes[connection]).second]
        ways = (zip(route.keys, route.second, strict=True) for route in routes)
        return any(classes.setdefault(key, second) != second for way in ways for key, second in way)

    @property
    def train(self) -> int:
        """Packets of one."""
        return max(1, -(-self.packets // (_TRAINS_IN_TURNS if self.turns else _TRAINS)))

    @property
    def rough_train(self) -> int:
        return max(1, -(-self.packets // _TRAINS))

    @property
    def takes_long(self) -> bool:
        """To follow in trains: much longer than message by message."""
        stages = sum(its[0] * (len(self.routes[connection].keys) + 1) for connection, its in self.carried.items())
        return stages / self.train > max(_LITTLE, _OF_A_MESSAGE * self.messages)

    def of_bytes_ns(self) -> float:
        """What the busiest cable's and PCIe's bytes take."""
        memory: dict[tuple[str, int], int] = {}
        for connection, (_, nbytes) in self.carried.items():
            if not self.routes[connection].scale_up:
                for end in (("from", connection[0]), ("into", connection[1])):
                    memory[end] = memory.get(end, 0) + nbytes
        pcie = max(memory.values(), default=0) * 8e9 / self.case.costs.pcie_rate_bps
        return max((pcie, *(link.time_ns(nbytes) for nbytes, link in self.loads.values())))

    def alone_ns(self) -> float:
        """With no message in another's way."""
        case = self.case
        return max(self._run(lambda agenda: Alone(agenda, case.ways, case.costs)))

    def roughly_ns(self) -> float:
        """In trains that are no shorter than where no classes take turns."""
        case, train = self.case, self.rough_train
        return max(self._run(lambda agenda: Network(agenda, case.ways, case.costs, train)))

    def without_pauses_ns(self) -> float:
        return max(self._watched[0])

    @property
    def ends(self) -> tuple[float, ...]:
        """When each rank is through.  Raises NoModel.

        Pauses are followed only where they hold something up: elsewhere it would be the same.
        """
        ends, paused = self._watched
        if self.buffers:
            self.buffers.paused.update({cast(Hop, self._like[1][k]): held for k, held in paused})
        return self._paused if self.held_up else ends

    def time_ns(self) -> float:
        return max(self.ends)

    @property
    def held_up(self) -> bool:
        """Whether something is, by pauses."""
        return any(held for _, held in self._watched[1])

    @cached_property
    def _watched(self) -> _Watched:
        case, rooms = self.case, self._rooms
        like, names = self._like

        def run() -> _Watched:
            watch = Watch(rooms) if rooms else None
            ends = self._run(lambda agenda: Network(agenda, case.ways, case.costs, self.train, watch))
            return ends, tuple((names.index(hop), held) for hop, held in (watch.paused() if watch else {}).items())

        return _known(like, run)

    @property
    def _paused(self) -> tuple[float, ...]:
        case, rooms = self.case, self._rooms
        made = lambda agenda: PausingNetwork(agenda, case.ways, case.costs, self.packets, rooms)  # noqa: E731
        return _known(self._like[0] + b"paused", lambda: (self._run(made), ()))[0]

    def _run(self, made: Callable[[Agenda], Network]) -> tuple[float, ...]:
        return tuple(Replay(self.case, self.programs, made).run(self.starts))

    @cached_property
    def _rooms(self) -> Mapping[str, Room]:
        """None where nowhere as much comes in over a cable in all as pauses its sender."""
        into: dict[str, list[float]] = {}
        rooms = self.buffers.rooms if self.buffers else {}
        for key, (nbytes, _) in self.loads.items() if rooms else ():
            into.setdefault(cast(Hop, key)[1], []).append(nbytes)
        enough = (node in rooms and max(its) >= rooms[node].least(len(its)) for node, its in into.items())
        return rooms if any(enough) else {}

    @cached_property
    def _like(self) -> tuple[bytes, list[Hashable]]:
        """The same where a replay can only give the same: groups whose links are alike, and shared alike, take as long.

        So a job of thousands of groups has few to follow.  A link counts by when it occurs first, whatever its name;
        where somebody may be paused, so do the nodes.  And the links.
        """
        names: dict[Hashable, int] = {}
        links: dict[Link, int] = {}
        ways: dict[tuple[Any, ...], int] = {}
        routes = []
        for a, b, channel in sorted(self.carried):
            for pair in ((a, b), (b, a)):  # acknowledgements go back
                route = self.routes[*pair, channel]
                keys = tuple([names.setdefault(key, len(names)) for key in route.keys])
                path = tuple([links.setdefault(link, len(links)) for link in route.links])
                way = path, route.path.switch_latency_ns, route.scale_up, route.second
                routes.append((pair, channel, keys, ways.setdefault(way, len(ways))))
        which = own(self.schedule) or (self.schedule.__module__, self.schedule.__qualname__)
        case, starts = self.case, tuple(self.starts)
        parameters = which, case.shape, case.width, case.costs, starts, list(links), list(ways), routes
        nodes = _nodes(cast("Sequence[Hop]", list(names)), self._rooms) if self._rooms else None
        return blake2b(repr((parameters, nodes)).encode(), digest_size=16).digest(), list(names)


def _nodes(hops: Sequence[Hop], rooms: Mapping[str, Room]) -> list[tuple[int, Room | None]]:
    """Where each link leads."""
    nodes: dict[str, int] = {}
    return [(nodes.setdefault(node, len(nodes)), rooms.get(node)) for _, node in hops]


def own(schedule: Schedule) -> str | None:
    """What tells a user's schedule (workloads/own/) from others.  Its pieces need not be alike."""
    return cast("str | None", getattr(schedule, "identity", None))


def _known(like: bytes, run: Callable[[], _Watched]) -> _Watched:
    if like not in _ENDED:
        if len(_ENDED) == _MOST_KNOWN:
            del _ENDED[next(iter(_ENDED))]
        _ENDED[like] = run()
    return _ENDED[like]


_ENDED: dict[bytes, _Watched] = {}
"""When ranks are through, and which of the links, by when they occur first, lead to buffers that pause (buffers.py)."""
_MOST_KNOWN = 4096
