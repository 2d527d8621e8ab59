"""Messages from rank to rank: one RDMA write each, into memory that nobody else wants meanwhile (places.py).

A connection carries all messages of a pair of ranks that have one traffic class.  An immediate is a message's number on
its way.  A sender draws every message from one buffer of random bytes, shifted by the message's number.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from struct import Struct
from typing import TYPE_CHECKING, Any

from workloads.base import data
from workloads.parts.context import Context
from workloads.parts.receives import Receives
from workloads.tasks.communicator import POSTED, SENT
from workloads.tasks.places import aligned
from workloads.verbs import FabricError, Peer, QueuePair, wire
from workloads.verbs.wire import Record

if TYPE_CHECKING:
    from numpy.typing import NDArray

_TARGET = Struct("<IQ")  # region key, offset

Way = tuple[int, int]  # peer, lane
Order = Mapping[str, Any]


@dataclass
class Message:
    """A send or a receive of ours."""

    messages: Messages
    task: int
    order: Order
    delivered: bool = False  # acknowledged, or arrived
    started: bool = False

    def start(self) -> None:
        self.started = True
        if self.order["do"] == "send":
            self.messages.send(self.order)

    @property
    def done(self) -> bool:
        return self.started and self.delivered

    def finish(self) -> int:
        return self.messages.wrong(self.order) if self.order["do"] == "recv" else 0

    def awaited(self) -> list[int]:
        return [] if self.delivered else [self.order["peer"]]


class Messages:
    """All messages that a rank sends and receives."""

    def __init__(self, context: Context, lanes: Sequence[Order], orders: Sequence[tuple[int, Order]]) -> None:
        self.context, self.device, self.lanes, self.orders = context, context.device, lanes, orders
        self.ways: list[Way] = sorted({(order["peer"], order["lane"]) for _, order in orders})
        self.base: dict[Way, int] = {}
        at = 0
        for way in self.ways:
            self.base[way] = at
            ends = [o["at"] + aligned(o["size_bytes"]) for _, o in orders if o["do"] == "recv" and _way(o) == way]
            at += max(ends, default=0)
        self.landing = context.region("messages in", at)
        longest = max((o["size_bytes"] for _, o in orders if o["do"] == "send"), default=0)
        self.source = context.region("messages out", data.PERIOD + longest)
        data.fill(self.source.view("uint8"), data.noise_bytes(context.seed, self.device.rank), 0, self.device.progress)
        self._noise: dict[int, NDArray[Any]] = {}

    def peers(self, tag: int) -> list[Peer]:
        """Whom to connect with, in the order of `ways`."""
        peers = []
        for peer, number in self.ways:
            lane = self.lanes[number]
            private = _TARGET.pack(self.landing.key, self.landing.at + self.base[peer, number])
            marking: dict[str, Any] = {key: lane.get(key) for key in SENT}
            peers.append(Peer(peer, tag + lane["tag"], private, **marking))
        return peers

    def connected(self, pairs: Sequence[QueuePair]) -> None:
        self.pairs = dict(zip(self.ways, pairs, strict=True))
        self.targets = {way: _TARGET.unpack(pair.private) for way, pair in self.pairs.items()}
        self._way_of = {pair.number: way for way, pair in self.pairs.items()}
        self.receives = {pair.number: Receives(pair, self.landing, POSTED) for pair in pairs}

    def prepare(self, iteration: int, left_out: Collection[int] = ()) -> None:
        """Before an iteration without these tasks: everything is wrong yet, and receives are posted."""
        self.iteration = iteration
        if self.landing.used:  # zeros are as wrong as anything where noise should come
            data.spoil(self.landing.view("uint8"), self.device.progress)
        self.landing.used = True
        self.live: dict[tuple[str, Way, int], Message] = {
            (order["do"], _way(order), order["number"]): Message(self, task, order)
            for task, order in self.orders
            if task not in left_out
        }
        for way, pair in self.pairs.items():
            count = sum(do == "recv" and other == way for do, other, _ in self.live)
            if count > POSTED // 8:
                self.device.time_ns  # noqa: B018  (let those before reach the NIC: there is a limit to what is on its way)
            self.receives[pair.number].expect(count)

    def of(self, order: Order) -> Message:
        return self.live[order["do"], _way(order), order["number"]]

    def send(self, order: Order) -> None:
        way, number = _way(order), order["number"]
        key, base = self.targets[way]
        shift, nbytes = self._shift(order), order["size_bytes"]
        self.pairs[way].write(self.source, shift, nbytes, key, base + order["at"], wr_id=number, imm=number)

    def take(self, record: Record) -> Message:
        """Takes a completion; returns whose it is."""
        way = self._way_of[record.qp]
        if record.kind == wire.SENT:
            message = self.live.get(("send", way, record.wr_id))
        else:
            message = self.live.get(("recv", way, record.imm))
            self.receives[record.qp].took()
        if message is None or message.delivered:
            raise FabricError(f"a record of kind {record.kind} with immediate {record.imm} among messages")
        message.delivered = True
        return message

    def wrong(self, order: Order) -> int:
        peer = order["peer"]
        if peer not in self._noise:
            self._noise[peer] = data.noise_bytes(self.context.seed, peer)
        received = self.landing.view("uint8", self.base[_way(order)] + order["at"], order["size_bytes"])
        return data.count_wrong(received, self._noise[peer], self._shift(order), self.device.progress)

    def _shift(self, order: Order) -> int:
        """Where in its sender's bytes a message begins: elsewhere for each, so that swapped ones are seen."""
        return int(order["number"] * 1009 + self.iteration * 127) % data.PERIOD


def _way(order: Order) -> Way:
    return order["peer"], order["lane"]
