"""A network that carries messages, for expected times: stages that take one train of packets at a time.

None of the emulator's code.  A train is a few packets of one message; its first packet goes on as soon as it is there.
Queue pairs of a NIC take turns, train by train, and what a NIC has fetched and not yet sent is bounded.  Left out are
losses, full buffers (buffers.py sees where there would be pauses, pausing.py has them), marks, classes, and what an
acknowledgement waits for: it goes before data, and takes its time of the links.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Sequence
from functools import cache, partial
from heapq import heappop, heappush
from itertools import count, pairwise
from typing import Any, TypeAlias, cast

from topologies.graph.frames import (
    ACK_BYTES,
    FRAME_BYTES,
    HEADER_BYTES,
    IMM_BYTES,
    OUTSIDE_BYTES,
    RETH_BYTES,
    wire_bytes,
)
from topologies.ranks.hops import Hop
from workloads.credit.pulls import Claim, Pulls
from workloads.times.buffers import Transits, Watch
from workloads.times.messages import Costs, Link, Path, loop_of, received_ns, sent_ns
from workloads.times.queue_pairs import Bond
from workloads.times.ways import Pair, Route, Ways

_WIRE, _PAYLOAD = 0, 1

Callback = Callable[[float], None]
_Bytes = tuple[int, int]  # on the wire, and of payload
_Parts = tuple[_Bytes, _Bytes, _Bytes, int, bool, int]
"""A train's: whole, first and last packet, acknowledgements, is it the last, packets."""


class Agenda:
    """What happens next."""

    def __init__(self) -> None:
        self.heap: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self.order = count()

    def at(self, t: float, call: Callable[..., None], *args: Any) -> None:
        heappush(self.heap, (t, next(self.order), call, args))

    def run(self) -> None:
        heap = self.heap
        while heap:
            t, _, call, args = heappop(heap)
            call(t, *args)


class Stage:
    """A link or a PCIe: `after_ns` later what it carried waits for the next.  `joins`: no second store and forward.

    `waiting`: trains of two classes that take turns, whose `turn` it is, and which have so many bytes of `credit`.
    """

    __slots__ = ("after_ns", "counts", "credit", "free", "joins", "ns_per_byte", "turn", "waiting")

    def __init__(self, rate_bps: float, after_ns: float, counts: int = _WIRE, *, joins: bool = False) -> None:
        self.ns_per_byte = 8e9 / rate_bps
        self.after_ns, self.counts, self.joins = after_ns, counts, joins
        self.free = 0.0
        self.waiting: tuple[deque[_Entry], deque[_Entry]] | None = None
        self.turn, self.credit = 0, [0, 0]


class _Message:
    __slots__ = ("nbytes", "pair", "received", "sent")

    def __init__(self, pair: QueuePair, nbytes: int, received: Callback, sent: Callback | None) -> None:
        self.pair, self.nbytes, self.received, self.sent = pair, nbytes, received, sent


class Train:
    """Bytes of all of it, of its first and of its last packet; acknowledgements that it asks for.

    `message`: that it is the end of.
    """

    __slots__ = ("acks", "first", "last", "message", "packets", "tail", "whole")

    def __init__(self, message: _Message, parts: _Parts) -> None:
        self.whole, self.first, self.last, self.acks, ends, self.packets = parts
        self.message = message if ends else None
        self.tail = 0.0  # when its last packet waits for the stage that its first one has come to


_Entry: TypeAlias = "tuple[float, Train, QueuePair, int]"  # when a train came, and to which of its stages


class _Port:
    """A NIC's way out."""

    __slots__ = ("pcie", "queue_pairs", "used")

    def __init__(self, pcie: Stage | None) -> None:
        self.pcie = pcie
        self.used = 0.0
        self.queue_pairs: deque[QueuePair] = deque()


class QueuePair:
    """From one rank to another.  `transits`: of the buffer before each stage.  `second`: its class at each link.

    `early`: for each stage, ns per byte behind the header that a packet goes on before its end, by cut-through; less
    than 0: after it, as one of several at the same time, each of which takes as long.
    """

    __slots__ = (
        "ack_ns", "back", "begun", "bond", "claim", "early", "final", "links", "packets", "port", "queue", "second",
        "stages", "transits",
    )  # fmt: skip

    def __init__(
        self, port: _Port, route: Route, stages: list[Stage], transits: list[Transits | None], ack_ns: float
    ) -> None:
        self.port, self.stages, self.transits, self.ack_ns = port, stages, transits, ack_ns
        self.links, self.final, self.second = len(route.links), len(stages) - 1, route.second
        cuts = [8e9 / link.rate_bps if link.cuts_into(after) else 0.0 for link, after in pairwise(route.links)]
        self.early = [*(cut - _beside(link) for cut, link in zip((*cuts, 0.0), route.links, strict=True)), 0.0]
        self.back: list[Stage] = []
        self.packets = 0  # posted so far
        self.queue: deque[tuple[_Message, _Parts]] = deque()
        self.bond: Bond[QueuePair] | None = None  # that it is the first one of
        self.claim: Claim | None = None  # what it wants of its receiver, under a control by credit
        self.begun: _Message | None = None  # then of which something has gone


class Network:
    """The ranks of a group, and what lies between them.  `train`: packets of a train.  `watch`: buffers on the way."""

    def __init__(self, agenda: Agenda, ways: Ways, costs: Costs, train: int, watch: Watch | None = None) -> None:
        self._agenda, self._ways, self._costs, self._train, self._watch = agenda, ways, costs, train, watch
        self._heap, self._order = agenda.heap, agenda.order
        self._come, self._gone = self._enter, self._sent
        self._pulls = Pulls(costs.credit, costs.mtu, train, agenda.at) if costs.credit else None
        self._room = max(costs.tx_buffer_bytes, 3 * train * (costs.mtu + FRAME_BYTES))
        self._stages: dict[Hashable, Stage] = {}
        self._ports: dict[tuple[int, bool], _Port] = {}
        self._parts = cache(self._cut)
        self._between = cache(self._route)

    def connect(self, pair: Pair, channel: int = 0) -> QueuePair:
        """The first of a connection's queue pairs, which stands for all of them."""
        first, costs = self._connect(pair, channel, 0), self._costs
        if costs.queue_pairs > 1 and not self._ways.route(pair, channel).scale_up:
            others = [self._connect(pair, channel, lane) for lane in range(1, costs.queue_pairs)]
            first.bond = Bond([first, *others], costs.post_ns, split=costs.split)
        return first

    def _connect(self, pair: Pair, channel: int, lane: int) -> QueuePair:
        route, stages = self._between(pair, channel, lane)
        port_key = (pair[0], route.scale_up)
        if port_key not in self._ports:
            pcie = None if route.scale_up else self._pcie("fetch", pair[0])
            self._ports[port_key] = _Port(pcie)
        back, stages_back = self._between(
            (pair[1], pair[0]), channel, lane
        )  # over which ECMP may lead acknowledgements elsewhere
        queue_pair = QueuePair(
            self._ports[port_key], route, stages, self._buffers(route, len(stages)), back.path.back_ns()
        )
        queue_pair.back = stages_back[: len(back.links)]
        if self._pulls and not route.scale_up:
            loop = loop_of(route.path, self._costs)
            queue_pair.claim = self._pulls.claim(route.keys[-1], loop, partial(self._goes_on, queue_pair))
        return queue_pair

    def check_through(self) -> None:
        """Once nothing happens any more: everything is through here."""

    def post(self, t: float, pair: QueuePair, nbytes: int, received: Callback, sent: Callback | None) -> None:
        """Calls `received` when the receiver knows it, `sent` when the sender knows that it has arrived."""
        if pair.bond is None:
            self._post(t, pair, nbytes, received, sent)
        else:
            pair.bond.post(t, nbytes, received, sent, self._post)

    def _post(self, t: float, pair: QueuePair, nbytes: int, received: Callback, sent: Callback | None) -> None:
        message = _Message(pair, nbytes, received, sent)
        self._agenda.at(t + self._costs.pcie_latency_ns, self._posted, pair, nbytes, message)

    def _pcie(self, which: str, rank: int) -> Stage:
        costs = self._costs
        return self._stages.setdefault((which, rank), Stage(costs.pcie_rate_bps, costs.pcie_latency_ns, _PAYLOAD))

    def _route(self, pair: Pair, channel: int, lane: int) -> tuple[Route, list[Stage]]:
        route = self._ways.route(pair, channel, lane)
        latencies = (*route.path.switch_latency_ns, 0.0)
        if route.scale_up:
            latencies = (0.0, 0.0)
        stages = []
        for k, (key, link) in enumerate(zip(route.keys, route.links, strict=True)):
            joins = route.scale_up and k > 0
            after = 0.0 if joins else link.delay_ns + latencies[k] + HEADER_BYTES * _beside(link)
            stages.append(self._stages.setdefault(key, Stage(link.together_bps, after, joins=joins)))
        for stage, second in zip(stages, route.second, strict=False):
            if second and stage.waiting is None:
                stage.waiting = deque(), deque()
        if not route.scale_up:
            stages.append(self._pcie("write", pair[1]))
        return route, stages

    def _buffers(self, route: Route, stages: int) -> list[Transits | None]:
        if self._watch is None or route.scale_up:
            return [None] * stages
        latencies = (*route.path.switch_latency_ns, 0.0)
        hops = cast("Sequence[Hop]", route.keys)
        return [None, *map(self._watch.at, hops, latencies, (*hops[1:], None))]

    def _cut(self, nbytes: int, before: int) -> list[_Parts]:
        """The trains of a message that so many packets of its queue pair, modulo `ack_every`, come before."""
        costs, n, behind = self._costs, self._costs.packets(nbytes), self._costs.behind_bytes
        trains = []
        for begin in range(0, n, self._train):
            end = min(begin + self._train, n)
            payload = min(end * costs.mtu, nbytes) - begin * costs.mtu
            last_payload = payload - (end - 1 - begin) * costs.mtu
            reth, imm = costs.later_reth if begin else RETH_BYTES, IMM_BYTES * (end == n)
            single = end - begin == 1
            first = (wire_bytes(min(costs.mtu, payload), reth + imm * single + behind), min(costs.mtu, payload))
            last = first if single else (wire_bytes(last_payload, costs.later_reth + imm + behind), last_payload)
            between = max(end - begin - 2, 0)
            whole = first if single else (first[0] + last[0] + between * costs.packet_wire_bytes, payload)
            acks_due = (before + end) // costs.ack_every - (before + begin) // costs.ack_every
            acks = acks_due + (end == n and (before + end) % costs.ack_every > 0)
            trains.append((whole, first, last, acks, end == n, end - begin))
        return trains

    def _posted(self, t: float, pair: QueuePair, nbytes: int, message: _Message) -> None:
        if not pair.queue:
            pair.port.queue_pairs.append(pair)
        pair.queue.extend((message, parts) for parts in self._parts(nbytes, pair.packets % self._costs.ack_every))
        pair.packets += self._costs.packets(nbytes)
        if self._pulls and pair.claim:
            self._pulls.posted(pair.claim, nbytes)
        self._fetch(t, pair.port)

    def _goes_on(self, pair: QueuePair, t: float) -> None:
        pair.port.queue_pairs.append(pair)
        self._fetch(t, pair.port)

    def _goes(self, t: float, pair: QueuePair, claim: Claim) -> bool:
        """Whether its next train has credit."""
        assert self._pulls
        message, parts = pair.queue[0]
        begins = message.nbytes if pair.begun is not message else 0
        pair.begun = message
        return self._pulls.goes(t, claim, parts[0][_PAYLOAD], begins)

    def _fetch(self, t: float, port: _Port) -> None:
        queue_pairs, pcie = port.queue_pairs, port.pcie
        while queue_pairs and port.used < self._room:
            pair = queue_pairs.popleft()
            if pair.claim is not None and not self._goes(t, pair, pair.claim):
                continue
            train = Train(*pair.queue.popleft())
            if pair.queue:
                queue_pairs.append(pair)
            whole = train.whole
            port.used += whole[_WIRE]
            head = train.tail = t
            if pcie is not None:
                start = t if t > pcie.free else pcie.free
                pcie.free = start + whole[_PAYLOAD] * pcie.ns_per_byte
                train.tail = pcie.free + pcie.after_ns
                head = start + train.first[_PAYLOAD] * pcie.ns_per_byte + pcie.after_ns
            heappush(self._heap, (head, next(self._order), self._come, (train, pair, 0)))

    def _sent(self, t: float, port: _Port, nbytes: float) -> None:
        port.used -= nbytes
        if port.queue_pairs:
            self._fetch(t, port)

    def _enter(self, t: float, train: Train, pair: QueuePair, k: int) -> None:
        """A train's first packet is at stage `k`."""
        stage = pair.stages[k]
        if stage.waiting is None or (stage.free <= t and not any(stage.waiting)):
            self._carry(t, train, pair, k)
            return
        if not any(stage.waiting):
            self._agenda.at(stage.free, self._turn, stage)
        stage.waiting[pair.second[k]].append((t, train, pair, k))

    def _turn(self, t: float, stage: Stage) -> None:
        """A train of the class whose turn it is goes on."""
        assert stage.waiting is not None
        if stage.free <= t:
            which = self._scheduled(stage)
            came, train, pair, k = stage.waiting[which].popleft()
            left = stage.credit[which] - train.whole[_WIRE]
            stage.credit[which] = max(left, 0) if stage.waiting[which] else 0
            self._carry(came, train, pair, k)
        if any(stage.waiting):
            self._agenda.at(stage.free, self._turn, stage)

    def _scheduled(self, stage: Stage) -> int:
        """By deficit round robin with equal weights, where both classes wait."""
        assert stage.waiting is not None
        if not all(stage.waiting):
            return int(not stage.waiting[0])
        while stage.credit[stage.turn] < stage.waiting[stage.turn][0][1].whole[_WIRE]:
            stage.turn = 1 - stage.turn
            headers = RETH_BYTES + IMM_BYTES + self._costs.behind_bytes
            stage.credit[stage.turn] += self._train * wire_bytes(self._costs.mtu, headers)
        return stage.turn

    def _carry(self, t: float, train: Train, pair: QueuePair, k: int) -> None:
        """It came at `t`, and has its turn.  Predictions spend most of their time here: `Agenda.at` is spelled out."""
        stage, links, heap, order = pair.stages[k], pair.links, self._heap, self._order
        counts, ns_per_byte, whole = stage.counts, stage.ns_per_byte, train.whole
        first, last = train.first[counts] * ns_per_byte, train.last[counts] * ns_per_byte
        if stage.joins:
            t, last = t - first, 0.0
        start = t if t > stage.free else stage.free
        tail = stage.free = start + whole[counts] * ns_per_byte
        if train.tail + last > tail:
            tail = train.tail + last
        if (transits := pair.transits[k]) is not None:
            leaves = (start, tail - last) if k < links else (start + first, tail)  # for PCIe a packet stays
            between = OUTSIDE_BYTES * train.packets if k < links else 0
            transits.add((t, train.tail), leaves, whole[counts] - between, train.packets)
        head = start + first + stage.after_ns
        train.tail = tail + stage.after_ns
        if early := pair.early[k]:
            train.tail -= (train.last[_WIRE] - HEADER_BYTES) * early
            head -= (train.first[_WIRE] - HEADER_BYTES) * early
        if k == 0:
            heappush(heap, (tail - last, next(order), self._gone, (pair.port, whole[_WIRE])))
        if k == links - 1 and (train.acks or train.message is not None):
            self._acknowledge(t, train, pair)
        if k < pair.final:
            heappush(heap, (head, next(order), self._come, (train, pair, k + 1)))
        elif train.message is not None:
            heappush(heap, (train.tail, next(order), train.message.received, ()))

    def _acknowledge(self, t: float, train: Train, pair: QueuePair) -> None:
        for stage in pair.back:
            if train.acks and stage.free > t:
                stage.free += train.acks * ACK_BYTES * stage.ns_per_byte
        if train.message is not None and train.message.sent is not None:
            self._agenda.at(train.tail + pair.ack_ns + self._costs.pcie_latency_ns, train.message.sent)


def _beside(link: Link) -> float:
    """What a packet takes longer for a byte than all cables of a bundle together."""
    return 8e9 / link.rate_bps - 8e9 / link.together_bps


class Alone(Network):
    """With nobody else in it: a message takes what it takes by itself, so all of them no more than that.

    It is one event, whatever its packets and the length of its way.
    """

    def __init__(self, agenda: Agenda, ways: Ways, costs: Costs) -> None:
        super().__init__(agenda, ways, costs, 1)
        self._paths: dict[QueuePair, Path] = {}

    def _connect(self, pair: Pair, channel: int, lane: int) -> QueuePair:
        route = self._ways.route(pair, channel, lane)
        made = QueuePair(_Port(None), route, [], [], 0.0)
        self._paths[made] = route.path
        return made

    def _post(self, t: float, pair: QueuePair, nbytes: int, received: Callback, sent: Callback | None) -> None:
        path = self._paths[pair]
        self._agenda.at(t + received_ns(nbytes, path, self._costs), received)
        if sent is not None:
            self._agenda.at(t + sent_ns(nbytes, path, self._costs), sent)
