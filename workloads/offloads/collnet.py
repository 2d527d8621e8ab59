"""Reductions by scale-up domains and switches: a server's sum along each rail goes through the rail's accelerators.

The schedule is workloads/collectives/collnet.py; to it the switches are a peer, for which a group of the rail's ranks
stands (`Switches`).  When a rail's group is refused or fails, its ranks add up their share by a ring along the rail;
other rails do not notice.  All of a rail agree on that once they have given what others wait for: there each meets the
others of its rail, and none waits for another rail to do so.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import accumulate, pairwise
from typing import Any, NamedTuple

from workloads.collectives import collnet, host, ring
from workloads.collectives.collnet import Piece, gets, shares
from workloads.collectives.engine import Engine
from workloads.collectives.rails import Place, channels_of
from workloads.collectives.schedule import Schedule, Shape
from workloads.offloads import in_network
from workloads.offloads.offloaded import AGREE, Rejoining
from workloads.parts.part import Sync, Wanted
from workloads.verbs import Region, wire
from workloads.verbs.wire import Record


class _Up(NamedTuple):
    """In place of a queue pair: what a lane of the schedule sends to the switches."""

    switches: Switches
    channel: int

    @property
    def number(self) -> int:
        """None that a queue pair has."""
        return -1 - self.channel

    def recv(self, region: Region, *, wr_id: int) -> None:
        """Sums need none."""

    def write(self, region: Region, offset: int, nbytes: int, key: int, at: int, *, imm: int, **_: Any) -> None:
        self.switches.ready(imm * self.switches.channels + self.channel, offset, nbytes)


class Switches:
    """The pieces of a rank's share: all ranks of a rail post them in the same order, whichever are ready first."""

    def __init__(self, part: _Collnet, channels: int) -> None:
        self._part, self.channels = part, channels
        self.reset(())

    def reset(self, pieces: Sequence[Piece]) -> None:
        self.pieces, self.posted, self.arrived = pieces, 0, 0
        self._ready: dict[int, tuple[int, int]] = {}
        self._received = Counter[int]()  # on each channel

    def ready(self, piece: int, offset: int, nbytes: int) -> None:
        self._ready[piece] = offset, nbytes
        while self.posted in self._ready:
            self._part.post(*self._ready.pop(self.posted), self.pieces[self.posted])
            self.posted += 1

    def arrive(self) -> None:
        """The next piece's sum is here, or where it is wanted."""
        piece, (number, channel) = self.pieces[self.arrived], divmod(self.arrived, self.channels)
        self.arrived += 1
        self._part.engine.take(Record(wire.SENT, 0, number, 0, -1 - channel, number, 0))
        if gets(piece, self._part.here):
            number, self._received[channel] = self._received[channel], self._received[channel] + 1
            self._part.engine.take(Record(wire.RECEIVED_IMM, 0, number, 0, -1 - channel, number, 0))


class Rail(Rejoining):
    """Ranks of which each rail's have a group of their own."""

    kind = "aggregate"
    arguments = staticmethod(in_network.AllReduce.arguments)
    here: Place

    @property
    def members(self) -> Sequence[int]:
        """The rail's ranks."""
        return [self.ranks[self.here.rank(server, self.here.gpu)] for server in range(self.here.servers)]

    @property
    def group_tag(self) -> int:
        return self.tag + self.here.gpu

    def _arguments(self) -> tuple[int, ...]:
        return self.arguments(self.context)


class _Collnet(host.Scheduled, Rail):
    """One rank's part."""

    schedule: Schedule
    around: Schedule
    """Of a ring along the rail."""

    def setup(self) -> None:
        self.inputs = self.context.inputs(self.n, self.dtype.name, self.op)
        self.input = self.inputs.of(self.index)
        largest = self._shape(max(self.options.get("sizes") or [self.context.largest_bytes]))
        self.here, self.width = Place(largest, self.index), self.dtype.itemsize
        self.switches = Switches(self, channels_of(self.here.gpus))
        self.engine = Engine(
            self.context, self.ranks, type(self).schedule, largest, self.width, self.tag,
            beyond=lambda channel: _Up(self.switches, channel), reducer=self.context.reducer,
        )  # fmt: skip
        alone = self.context.beside(-1 - self.tag, 1, self.options)
        along = replace(alone, completed=self.context.completed)  # records go by their queue pairs
        self.ring = Engine(along, self.members, type(self).around, self._share(largest), self.width, self.tag)
        self._join()
        self.by_hosts = False  # but for this rail

    @property
    def writes(self) -> bool:
        return True

    def _share(self, shape: Shape) -> Shape:
        """Of a ring along the rail."""
        return Shape(self.here.servers, sum(span.stop - span.start for span, _ in self._pieces(shape)))

    def _pieces(self, shape: Shape) -> Sequence[Piece]:
        return shares(shape, in_parts=self.entry.collective.in_parts)[self.here.gpu]

    def prepare(self, size_bytes: int, variant: int) -> None:
        self._renewed()
        super().prepare(size_bytes, variant)
        self.switches.reset(self._pieces(self.shape))

    def post(self, offset: int, nbytes: int, piece: Piece) -> None:
        """A piece of ours is added up in the server."""
        if self.given_up:
            return
        assert self.group is not None
        vector, count = self.engine.vector, nbytes // self.width
        output = self.engine.output if gets(piece, self.here) else vector  # where nothing comes
        op = "sum" if self.op == "avg" else self.op  # hosts divide
        whose: dict[str, Any] = {}
        if piece.server is not None:
            whose = {"collective": in_network.TO_ONE, "args": (0, 0, piece.server)}
        self.group.post(vector, offset, output, offset, count, reduction=op, dtype=self.dtype.name, **whose)

    def work(self) -> Iterator[Wanted]:
        self.fallback, met = self._note, False
        for wanted in self.engine.work(self.dtype.name, self.op):
            if not met and self._may_meet():
                met = True
                yield from self._meet()
            else:
                yield wanted
        if not met:
            yield from self._meet()
        self.conclude()

    def _may_meet(self) -> bool:
        """Whether no rank waits for us to do more, but those of our rail, if its group has failed."""
        its = self.switches
        return bool(self.given_up) and its.posted == len(its.pieces) and self.engine.given(its.channels)

    def _meet(self) -> Iterator[Wanted]:
        yield Sync(AGREE + self.group_tag, self.here.servers)
        if self.renewal is not None and self.given_up and self.group is None:
            self.renewal.look()
        if not self.given_up:
            self._worked = True
            return
        self.fallback = self.given_up
        if self.switches.pieces:
            yield from self._along_the_rail()
        if self.group is not None and not self.group.refused:
            self._renew()

    def _along_the_rail(self) -> Iterator[Wanted]:
        """The whole share, of which each rank lacks other pieces."""
        cut, shape, dtype = sorted(self._pieces(self.shape)), self._share(self.shape), self.dtype.name
        share = self.ring.vector.view(dtype, 0, shape.count)
        ours, result = self.engine.vector.view(dtype), self.engine.output.view(dtype)
        places = list(pairwise(accumulate((span.stop - span.start for span, _ in cut), initial=0)))
        for (span, _), place in zip(cut, places, strict=True):
            share[slice(*place)] = ours[slice(*span)]
        self.ring.prepare(shape)
        yield from self.ring.work(dtype, self.op)
        for piece, place in zip(cut, places, strict=True):
            if gets(piece, self.here):
                result[slice(*piece.span)] = share[slice(*place)]
        while self.switches.arrived < len(self.switches.pieces):
            self.switches.arrive()

    def handle(self, record: Record) -> None:
        if record.kind in (wire.GROUPED, wire.OFFLOADED, wire.GROUP_FAILED, wire.GROUP_NOTED):
            Rejoining.handle(self, record)
        else:
            self.engine.handle(record)

    def _done(self, record: Record) -> None:
        if not self.given_up:
            self.switches.arrive()

    def _failed(self, why: str) -> None:
        self.given_up = why


class AllReduce(_Collnet, host.AllReduce):
    """All have the sums."""

    schedule = staticmethod(collnet.all_reduce)
    around = staticmethod(ring.all_reduce)


class ReduceScatter(_Collnet, host.ReduceScatter):
    """Each has its part of them."""

    schedule = staticmethod(collnet.reduce_scatter)
    around = staticmethod(ring.reduce_scatter)
