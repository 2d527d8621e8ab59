"""The same network with buffers that end: whoever holds too much pauses who sends it more, with all that waits there.

What has come in over a cable, in each of two classes, is counted from its last bit in until it goes on, as
docs/buffers.md has it: in its reserve, in the shared part up to alpha times what is free of that, then in the headroom.
With the first byte of headroom the class is paused at the cable's other end; a train that has begun there is finished.
Left out are weights of classes that share a cable (they take turns), frames that XOFF waits for, and headroom that is
too small.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import cast

from topologies.graph.frames import OUTSIDE_BYTES, SHORTEST_BYTES
from topologies.ranks.hops import Hop
from workloads.base.entry import NoModel
from workloads.times.buffers import Room
from workloads.times.messages import Costs
from workloads.times.network import Agenda, Network, QueuePair, Stage, Train
from workloads.times.ways import Pair, Ways

TRAINS = 15_000
"""Of all messages together: short enough to wait by themselves."""


class Link:
    """A direction of a cable: what waits for it, by class, and which classes are paused."""

    __slots__ = ("acks_ns", "free", "paused", "stage", "turn", "waits", "woken")

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.waits: tuple[deque[_Waiting], ...] = deque(), deque()
        self.paused = [False, False]
        self.free = self.acks_ns = 0.0
        self.turn = 0
        self.woken = False


class Node:
    __slots__ = ("room", "used")

    def __init__(self, room: Room) -> None:
        self.room, self.used = room, 0.0

    @property
    def threshold(self) -> float:
        return self.room.alpha * max(self.room.shared - self.used, 0.0)


class Group:
    """What a node holds of what came in over one cable in one class."""

    __slots__ = ("across", "headroom", "link", "node", "pause_ns", "reserve", "shared", "xoff")

    def __init__(self, node: Node, link: Link, across: bool, delay_ns: float) -> None:
        self.node, self.link, self.across = node, link, across
        self.pause_ns = delay_ns + SHORTEST_BYTES * link.stage.ns_per_byte
        self.reserve = self.shared = self.headroom = 0.0
        self.xoff = False

    def take(self, nbytes: float) -> bool:
        """Whether the sender is to be paused now."""
        node = self.node
        into = min(nbytes, node.room.reserve - self.reserve)
        self.reserve, rest = self.reserve + into, nbytes - into
        if rest and not self.headroom and self.shared + rest <= node.threshold:
            self.shared += rest
            node.used += rest
        else:
            self.headroom += rest
        was, self.xoff = self.xoff, self.xoff or self.headroom > 0 or 0 < node.threshold <= self.shared
        return self.xoff and not was

    def let_go(self, nbytes: float) -> bool:
        """Whether the sender may go on."""
        node, room = self.node, self.node.room
        of_headroom = min(self.headroom, nbytes)
        of_shared = min(self.shared, nbytes - of_headroom)
        self.headroom -= of_headroom
        self.shared -= of_shared
        node.used -= of_shared
        self.reserve -= nbytes - of_headroom - of_shared
        full = self.shared + room.offset > node.threshold if self.shared else self.reserve > room.resumes
        was, self.xoff = self.xoff, self.xoff and (self.headroom > 0 or full)
        return was and not self.xoff


class _Hop:
    """A link of a queue pair's way, and the group at its end (None: nobody is paused there)."""

    __slots__ = ("across", "delay_ns", "group", "link")

    def __init__(self, link: Link, across: bool, delay_ns: float, group: Group | None) -> None:
        self.link, self.across, self.delay_ns, self.group = link, across, delay_ns, group


_Waiting = tuple[Train, QueuePair, int]


class PausingNetwork(Network):
    def __init__(self, agenda: Agenda, ways: Ways, costs: Costs, packets: int, rooms: Mapping[str, Room]) -> None:
        super().__init__(agenda, ways, costs, max(1, -(-packets // TRAINS)))
        self._rooms = rooms
        self._links: dict[Stage, Link] = {}
        self._nodes: dict[str, Node] = {}
        self._groups: dict[tuple[Hop, bool], Group] = {}
        self._hops: dict[QueuePair, list[_Hop]] = {}

    def _connect(self, pair: Pair, channel: int, lane: int) -> QueuePair:
        made = super()._connect(pair, channel, lane)
        route, _ = self._between(pair, channel, lane)
        if not route.scale_up:
            keys = cast("tuple[Hop, ...]", route.keys)
            classes = route.second or [False] * len(keys)
            ways = zip(keys, route.links, made.stages, classes, strict=False)
            self._hops[made] = [
                _Hop(self._link(stage), across, link.delay_ns, self._group(key, stage, across, link.delay_ns))
                for key, link, stage, across in ways
            ]
        return made

    def check_through(self) -> None:
        """Raises NoModel where pauses wait for each other."""
        if any(link.paused[k] and waits for link in self._links.values() for k, waits in enumerate(link.waits)):
            raise NoModel("PFC's pauses wait for each other in a circle, and nothing moves any more", "larger buffers")

    def _link(self, stage: Stage) -> Link:
        return self._links.setdefault(stage, Link(stage))

    def _group(self, hop: Hop, stage: Stage, across: bool, delay_ns: float) -> Group | None:
        room = self._rooms.get(hop[1])
        if room is None:
            return None
        node = self._nodes.setdefault(hop[1], Node(room))
        return self._groups.setdefault((hop, across), Group(node, self._link(stage), across, delay_ns))

    def _enter(self, t: float, train: Train, pair: QueuePair, k: int) -> None:
        hops = self._hops.get(pair)
        if hops is None:
            super()._enter(t, train, pair, k)
        elif k < pair.links:
            hops[k].link.waits[hops[k].across].append((train, pair, k))
            self._start(t, hops[k].link)
        else:  # PCIe: a packet stays until it has been written
            begun = max(t, pair.stages[k].free)
            self._carry(t, train, pair, k)
            ends = pair.stages[k].free
            each = (ends - begun) / train.packets
            self._leaves(begun + each, ends + each, hops[-1].group, train)

    def _start(self, t: float, link: Link) -> None:
        """The next train that may go; classes take turns."""
        if link.free > t:
            if not link.woken:
                link.woken = True
                self._agenda.at(link.free, self._woken, link)
            return
        ready = [k for k in (0, 1) if link.waits[k] and not link.paused[k]]
        if ready:
            k = ready[-1] if link.turn else ready[0]
            link.turn = 1 - k
            self._go(t, link, *link.waits[k].popleft())
            self._start(t, link)

    def _woken(self, t: float, link: Link) -> None:
        link.woken = False
        self._start(t, link)

    def _go(self, t: float, link: Link, train: Train, pair: QueuePair, k: int) -> None:
        """As every stage carries a train; and it leaves one buffer for another."""
        stage, hops = link.stage, self._hops[pair]
        stage.free, link.acks_ns = t + link.acks_ns, 0.0
        self._carry(t, train, pair, k)
        link.free = stage.free
        if k:
            self._leaves(t, link.free, hops[k - 1].group, train)
        if (group := hops[k].group) is not None:
            first = t + train.first[stage.counts] * stage.ns_per_byte
            self._agenda.at((first + link.free) / 2 + hops[k].delay_ns, self._comes, group, train)

    def _comes(self, t: float, group: Group, train: Train) -> None:
        if group.take(_held(train)):
            self._agenda.at(t + group.pause_ns, self._told, group, True)

    def _leaves(self, begun: float, ends: float, group: Group | None, train: Train) -> None:
        if group is not None:  # a train leaves bit by bit, a packet as it begins
            mean = begun + (ends - begun) * (train.packets - 1) / (2 * train.packets)
            self._agenda.at(mean, self._left, group, train)

    def _left(self, t: float, group: Group, train: Train) -> None:
        if group.let_go(_held(train)):
            self._agenda.at(t + group.pause_ns, self._told, group, False)

    def _told(self, t: float, group: Group, paused: bool) -> None:
        group.link.paused[group.across] = paused
        if not paused:
            self._start(t, group.link)

    def _acknowledge(self, t: float, train: Train, pair: QueuePair) -> None:
        """Of a cable that is taken they take time of what comes next."""
        super()._acknowledge(t, train, pair)
        for stage in pair.back:
            link = self._links.get(stage)
            if link is not None and stage.free > link.free:
                link.acks_ns += stage.free - link.free
                stage.free = link.free


def _held(train: Train) -> float:
    return train.whole[0] - OUTSIDE_BYTES * train.packets
