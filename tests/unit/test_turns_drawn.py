"""Any program, drawn, with completions in any order: what C says to fabricd is what Python says, byte by byte."""

from __future__ import annotations

import mmap
from collections import deque
from types import SimpleNamespace
from typing import Any
from unittest import mock

from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from workloads.collectives.compiled import Compiled, turns_of
from workloads.collectives.execution import Connection, Execution, Memory, Remote, Resolved
from workloads.collectives.schedule import (
    Channel,
    Clock,
    Copy,
    Lane,
    Place,
    Program,
    Recv,
    Send,
    Step,
    Wait,
    Work,
    copies,
    places,
)
from workloads.parts.context import Context, HostCosts
from workloads.verbs import Device, QueuePair, Region, session, wire
from workloads.verbs.wire import Record

ELEMENTS = 64
CHANNELS: list[Channel] = [(0, 0), (1, 0), (1, 1)]
FIRST = 3 << 14


class Silent:
    """A socket at whose other end is nobody."""

    def connect(self, path: str) -> None: ...

    def send(self, data: bytes) -> None:
        """Signs of life, which come by wall time."""


SOCKETS = SimpleNamespace(AF_UNIX=1, SOCK_SEQPACKET=5, socket=lambda *_: Silent())


class Side:
    """A rank that carries the program out in one of the two ways."""

    def __init__(self, resolved: Resolved, costs: HostCosts, *, in_c: bool) -> None:
        self.device = device = object.__new__(Device)
        device.__dict__ |= {"turns": None, "wake_ns": 0.0, "_queue_pairs": 1, "_due": [], "_clock_ps": 0, "rank": 9}
        device.real_clock = False
        with mock.patch.object(
            session, "socket", SimpleNamespace(AF_UNIX=1, SOCK_SEQPACKET=5, socket=lambda *_: Silent())
        ):
            device.session = session.Session("nowhere")
        self.context = Context(device, 1, costs)
        regions = [Region(mmap.mmap(-1, 1 << 12), key, at=64 * key) for key in (1, 2, 3)]
        for k, region in enumerate(regions):
            region.view("int32")[:] = range(k, k + len(region) // 4)
        self.memory = Memory(*regions)
        remote = Remote((71, 72, 73), (0, 4096, 8192))
        by = {
            channel: Connection(QueuePair(device.session, 100 + k, channel[0], b"", False), remote)
            for k, channel in enumerate(CHANNELS)
        }
        lanes = self.lane_streams if costs.by_channel else None
        self.execution: Execution | Compiled
        if in_c:
            turns = turns_of(self.context)
            assert turns is not None
            self.execution = Compiled(turns, self.context, 4, self.memory, by, FIRST, streams=lanes)
        else:
            self.execution = Execution(self.context, 4, self.memory, by, FIRST)
            if lanes:
                self.execution.reducer = self.reduce
        self.execution.resolve(resolved)
        self.execution.reset()

    @staticmethod
    def lane_streams(lane: int) -> int:
        return 40 + lane

    def reduce(self, lane: int, ns: float, then: Any) -> None:
        self.context.computed[lane] = then
        self.device.compute(ns, wr_id=lane, stream=self.lane_streams(lane))

    def said(self) -> bytes:
        """Since it was asked last."""
        its = self.device.session
        said, its.said = bytes(its.out[: its.said]), 0
        return said

    def take(self, record: Record) -> bytes:
        if record.kind == wire.COMPUTED and isinstance(self.execution, Execution):
            self.context.computed.pop(record.wr_id)()
        else:
            self.execution.take(record)
        return self.said()

    def state(self) -> tuple[Any, ...]:
        its = self.execution
        return its.done, its.steps_done, its.steps, its.awaited()

    def data(self) -> list[bytes]:
        return [bytes(region.view("uint8")) for region in self.memory.regions]


@st.composite
def programs(draw: st.DrawFn) -> Program:
    """Lanes of which each has connections of its own; they may wait for each other for ever."""
    count = draw(st.integers(1, 3))
    senders = [draw(st.integers(0, count - 1)) for _ in CHANNELS]
    receivers = [draw(st.integers(0, count - 1)) for _ in CHANNELS]
    lanes = []
    for number in range(count):
        clock = None
        if draw(st.booleans()):
            later = {peer: draw(st.sampled_from([0.0, 250.0])) for peer in (0, 1)}
            clock = Clock(draw(st.sampled_from([0.0, 100.0])), 10.0, 0.5, later)
        out = [c for c, lane in zip(CHANNELS, senders, strict=True) if lane == number]
        into = [c for c, lane in zip(CHANNELS, receivers, strict=True) if lane == number]
        kinds = ["copy"] + ["send"] * 3 * bool(out) + ["recv"] * 3 * bool(into) + ["work"] * bool(clock)
        kinds += ["wait"] * (count > 1)
        steps: list[Step] = []
        for kind in draw(st.lists(st.sampled_from(kinds), max_size=9)):
            start = draw(st.integers(0, ELEMENTS // 2))
            span = (start, start + draw(st.integers(0, 9)))
            region, reduce = draw(st.integers(0, 2)), draw(st.booleans())
            if kind == "send":
                peer, channel = draw(st.sampled_from(out))
                steps.append(Send(peer, *span, channel, 2 * (region == 2)))
            elif kind == "recv":
                peer, channel = draw(st.sampled_from(into))
                steps.append(Recv(peer, *span, reduce, channel, 2 * (region == 2)))
            elif kind == "copy":
                steps.append(Copy(*span, draw(st.integers(0, ELEMENTS // 2)), 0, 2 * (region == 2), reduce))
            elif kind == "work":
                steps.append(Work(span[1] - span[0]))
            else:
                other = draw(st.sampled_from([k for k in range(count) if k != number]))
                steps.append(Wait(other, draw(st.integers(0, 6))))
        window = draw(st.sampled_from([None, 1, 2]))
        padded = draw(st.sampled_from([1.0, 1.5]))
        buffered = draw(st.booleans())
        lanes.append(
            Lane(steps, window, draw(st.booleans()), buffered, clock=clock, padded=padded if buffered else 1.0)
        )
    return lanes


def resolved(program: Program) -> Resolved:
    own, staged = places(program)
    sends: dict[Channel, int] = {}
    for lane in program:
        for step in lane.steps:
            if isinstance(step, Send):
                sends[step.peer, step.channel] = sends.get((step.peer, step.channel), 0) + 1
    peers = {c: [Place(k % 3, 7 * k) for k in range(sends.get(c, 0))] for c in CHANNELS}
    return Resolved(program, own, peers, copies(program, staged))


class Events:
    """What may happen next, of all that was said."""

    def __init__(self, own: dict[Channel, int]) -> None:
        self.sent = {100 + k: deque[int]() for k in range(len(CHANNELS))}
        self.computing: list[int] = []
        self.coming = {100 + k: list(range(own[c])) for k, c in enumerate(CHANNELS)}

    def hear(self, said: bytes) -> None:
        at = 0
        while at < len(said):
            op, length, _ = wire.COMMAND.unpack_from(said, at)
            body = wire.BODY[op].unpack_from(said, at + wire.COMMAND.size)
            if op == wire.POST_SEND and body[2]:
                self.sent[body[0]].append(body[4])
            elif op == wire.COMPUTE:
                self.computing.append(body[0])
            at += length

    def drawn(self, draw: st.DataObject) -> Record | None:
        may: list[Any] = [(wire.SENT, qp, 0) for qp, its in self.sent.items() if its]
        may += [(wire.RECEIVED_IMM, qp, k) for qp, its in self.coming.items() for k in range(min(len(its), 2))]
        may += [(wire.COMPUTED, 0, k) for k in range(len(self.computing))]
        if not may:
            return None
        kind, qp, k = draw.draw(st.sampled_from(may))
        if kind == wire.SENT:
            return Record(kind, 0, self.sent[qp].popleft(), 5, qp, 0, 0)
        if kind == wire.COMPUTED:
            return Record(kind, 0, self.computing.pop(k), 5, 0, 0, 0)
        return Record(kind, 0, 0, 5, qp, FIRST + self.coming[qp].pop(k), 0)


@settings(max_examples=80, deadline=None, derandomize=True, phases=[Phase.generate])
@given(programs(), st.sampled_from([(None, False), (1e9, False), (1e9, True)]), st.integers(0, 6), st.data())
def test_any_program(program: Program, reduces: tuple[float | None, bool], early: int, data: st.DataObject) -> None:
    """Some messages may have come before it begins."""
    plan, costs = resolved(program), HostCosts(reduce_bps=reduces[0], by_channel=reduces[1])
    sides = [Side(plan, costs, in_c=in_c) for in_c in (False, True)]
    events = Events({c: len(plan.own.get(c, ())) for c in CHANNELS})
    for step in range(200):
        if step == early:
            for side in sides:
                side.execution.start("int32", "sum")
            said = [side.said() for side in sides]
        else:
            record = events.drawn(data)
            if record is None:
                if step > early:
                    break
                continue
            said = [side.take(record) for side in sides]
        assert said[1] == said[0]
        events.hear(said[0])
        assert sides[1].state() == sides[0].state()
    assert sides[1].data() == sides[0].data()
