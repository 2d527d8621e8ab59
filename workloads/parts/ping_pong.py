"""Ping-pong: a message to the other rank and back.  The time is the round trip: half of it is what a message takes.

The second rank sends back what it got, so that the first sees the damage of both ways.
"""

from __future__ import annotations

from struct import Struct

from workloads.base import data
from workloads.parts.part import Part
from workloads.verbs import FabricError, Peer, Region, wire

_KEY = Struct("<I")


class WritePingPong(Part):
    """By RDMA write with immediate."""

    arrival = wire.RECEIVED_IMM

    def setup(self) -> None:
        self.outbox = self.context.region("vector")
        self.inbox = self.context.region("staging")
        self.input = data.Inputs(self.context.seed, 2, self.dtype.name, None).of(0)
        peer = Peer(self.ranks[1 - self.index], self.tag, _KEY.pack(self.inbox.key))
        (self.pair,) = self.device.connect([peer])
        (self.rkey,) = _KEY.unpack(self.pair.private)

    def prepare(self, size_bytes: int, variant: int) -> None:
        self.size_bytes = size_bytes
        self.start = variant
        self.arrived = self.sent = False
        count = size_bytes // self.dtype.itemsize
        self.received = self.inbox.view(self.dtype.name, 0, count)
        data.spoil(self.received, self.device.progress)
        if self.index == 0:
            data.fill(self.outbox.view(self.dtype.name, 0, count), self.input, self.start, self.device.progress)
        self._recv()

    def run(self) -> None:
        if self.index == 0:
            self._send(self.outbox)
        while not self.arrived:
            self._wait()
        if self.index == 1:
            self._send(self.inbox)

    def finish(self) -> int:
        while not self.sent:  # here and not in run: an acknowledgement on its way back is no part of the round trip
            self._wait()
        return data.count_wrong(self.received, self.input, self.start, self.device.progress)

    def _recv(self) -> None:
        self.pair.recv(self.inbox)

    def _send(self, source: Region) -> None:
        self.pair.write(source, 0, self.size_bytes, self.rkey, 0, imm=0)

    def _wait(self) -> None:
        for record in self.device.wait():
            if record.kind == wire.SENT:
                self.sent = True
            elif record.kind == self.arrival and record.nbytes == self.size_bytes:
                self.arrived = True
            else:
                raise FabricError(f"a record of kind {record.kind} with {record.nbytes} bytes in a ping-pong")


class SendPingPong(WritePingPong):
    """By send and receive."""

    arrival = wire.RECEIVED

    def _recv(self) -> None:
        self.pair.recv(self.inbox, 0, self.size_bytes)

    def _send(self, source: Region) -> None:
        self.pair.send(source, 0, self.size_bytes)
