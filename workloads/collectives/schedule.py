"""What a schedule is: who sends which piece to whom, in which order, as pure data.

A rank's *program* is a few lanes.  A lane is what MSCCL calls a thread block: it does its steps in order, waits where
it must receive or for another lane, and never where it sends.  Lanes of one rank run side by side.
Everything follows from a `Shape`, which all ranks know, and a rank's index, so that every rank can work out where
another one wants what it sends it: nothing but memory keys goes over the wire beforehand.

Ranks are indices into their group here; positions are elements of the vector.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import accumulate, pairwise
from math import ceil
from typing import Any, NamedTuple, Protocol, TypeVar, cast

from workloads.base.entry import Algorithm, named
from workloads.collectives.manner import Manner

VECTOR, STAGING, OUTPUT = range(3)
"""Memory of a rank: what it has, what has come and is not yet reduced, and what has a place of its own.

That is the result, or what a schedule keeps in an order of its own, or has to leave alone while it is sent.
"""


class Send(NamedTuple):
    """Elements `start` to `stop` of our vector (or `source`) go to `peer`, wherever its matching Recv wants them."""

    peer: int
    start: int
    stop: int
    channel: int = 0
    source: int = VECTOR


class Recv(NamedTuple):
    """Wait for the next message from `peer` on `channel`: the elements `start` to `stop` of our vector (or `into`).

    To `reduce` they are combined with what stands there; otherwise they have arrived in their place.
    """

    peer: int
    start: int
    stop: int
    reduce: bool = False
    channel: int = 0
    into: int = VECTOR


class Copy(NamedTuple):
    """Elements `start` to `stop` of `source` are copied to `to` in `into`, at no cost in time.

    To `reduce` they are combined with what stands there, which takes a reduction's time.
    """

    start: int
    stop: int
    to: int
    source: int = VECTOR
    into: int = OUTPUT
    reduce: bool = False


class Wait(NamedTuple):
    """Go on when our lane `lane` has done its first `steps` steps."""

    lane: int
    steps: int


class Work(NamedTuple):
    """So many elements pass the lane's clock (`Clock`), which does nothing else meanwhile."""

    elements: int


Step = Send | Recv | Copy | Wait | Work


@dataclass(frozen=True)
class Clock:
    """What a lane takes that has a clock of its own, as a GPU's thread block: its reductions are in its `Work`.

    `begin_ns`: before its first step.  `later_ns`: by peer, how long after a message has arrived the lane sees it.
    """

    begin_ns: float
    slice_ns: float
    element_ns: float
    later_ns: Mapping[int, float]

    def takes_ns(self, step: Work) -> float:
        return self.slice_ns + step.elements * self.element_ns


Channel = tuple[int, int]  # index of the peer in the group, channel


class Lane:
    """Steps in order; at most `window` of its messages (`per_peer`: to each peer) are under way at a time.

    None: all that there are.  What must wait goes out in order.  `steps` may be a function that makes them: then they
    are made when somebody looks at them, and `channels` says with whom they are.  Of a ring or a pipeline among a
    thousand ranks there are millions, and who plans it asks for the neighbours alone.
    `buffered`: what it sends is copied when its turn comes, and what it receives lands apart and is copied when it is
    taken, as through NCCL's FIFOs: memory is free when its step is done.  Else messages go from memory to memory.
    `padded`: elements that a buffered lane's message takes for each of its own, with a protocol's flags among them.
    """

    def __init__(
        self,
        steps: Sequence[Step] | Callable[[], Sequence[Step]],
        window: int | None = None,
        per_peer: bool = False,
        buffered: bool = False,
        channels: Iterable[Channel] | None = None,
        clock: Clock | None = None,
        padded: float = 1.0,
    ) -> None:
        self._steps, self.window, self.per_peer, self.buffered = steps, window, per_peer, buffered
        self.clock, self.padded = clock, padded
        self._channels = None if channels is None else frozenset(channels)

    @cached_property
    def steps(self) -> Sequence[Step]:
        return self._steps() if callable(self._steps) else self._steps

    def elements(self, step: Send | Recv) -> int:
        """Of a message, as it is sent."""
        return ceil((step.stop - step.start) * self.padded)

    @property
    def channels(self) -> frozenset[Channel]:
        """Of each connection that it takes."""
        if self._channels is not None:
            return self._channels
        return frozenset((step.peer, step.channel) for step in self.steps if isinstance(step, Send | Recv))


Program = Sequence[Lane]

EAGER_BYTES = 64 << 10
"""Messages up to this size do not wait for each other: as MPI sends them before the receiver has said anything.

A NIC fetches several of them at once and sends them in order; of larger ones it would send all children's together.
"""

WINDOW = 8
"""Messages of a pipelined lane that are under way at a time: as many as NCCL has slots (NCCL_STEPS)."""


@dataclass(frozen=True)
class Shape:
    """What a schedule depends on, the same for all ranks of a group."""

    ranks: int
    count: int  # elements of the vector, in the sense of nccl-tests
    chunk: int | None = None  # elements of a piece, at most; None: whole messages
    dims: tuple[int, ...] = ()  # of the grid that the group's ranks are in, row by row
    senders: int = 0  # how many of the ranks send: the first ones
    counts: tuple[tuple[int, ...], ...] = ()
    """Elements, where they are unequal: [from][to]; or one row, what each rank has of the vector."""
    eager: int = 0  # elements of the largest message that others do not wait for
    library: Manner | None = None  # how a library carries it out, where it does

    def length(self, index: int) -> int:
        """Elements of rank `index`'s vector."""
        return sum(self.counts[index]) if len(self.counts) > 1 else self.count

    @property
    def chunks(self) -> Sequence[Span]:
        """What each rank has of the vector."""
        return lying(self.counts[0]) if self.counts else spans(self.count, self.ranks)

    @property
    def window(self) -> int | None:
        return None if self.chunk is None else WINDOW

    def in_turn(self, longest: int) -> int | None:
        """The window of a lane whose whole messages, of so many elements at most, go one after the other."""
        return 1 if longest > self.eager else None


Schedule = Callable[[Shape, int], Program]


def more_than(schedule: Schedule, shape: Shape, limit: int) -> bool:
    """Whether all ranks together send more messages than the limit; stops at the rank that exceeds it."""
    sends = (
        sum(isinstance(step, Send) for step in steps(program_of(schedule, shape, index)))
        for index in range(shape.ranks)
    )
    return any(sent > limit for sent in accumulate(sends))


def schedule_of(entry: Algorithm) -> Schedule:
    """The function that makes an algorithm's programs."""
    return cast(Schedule, entry.own or named(entry.schedule))


@lru_cache(maxsize=2048)
def program_of(schedule: Schedule, shape: Shape, index: int) -> Program:
    """The program of a group's rank.  Cached for its peers, and for ranks that share the process."""
    return schedule(shape, index)


class Span(NamedTuple):
    """Elements from `start` to before `stop`."""

    start: int
    stop: int


@lru_cache(maxsize=256)  # all ranks of a large group cut alike
def spans(count: int, parts: int, start: int = 0) -> tuple[Span, ...]:
    """`count` elements from `start` on in `parts` spans, longest first; lengths differ by one at most, and may be 0."""
    each, more = divmod(count, parts)
    edges = [start + each * i + min(i, more) for i in range(parts + 1)]
    return tuple(Span(a, b) for a, b in pairwise(edges))


def lying(lengths: Sequence[int], start: int = 0) -> Sequence[Span]:
    """Spans of these lengths, side by side."""
    return [Span(a, b) for a, b in pairwise(accumulate(lengths, initial=start))]


def pieces(start: int, stop: int, chunk: int | None) -> list[Span]:
    """A span in pieces of at most `chunk` elements, equal but for one element; one piece at least, be it empty."""
    count = stop - start
    return list(spans(count, max(1, -(-count // chunk)) if chunk else 1, start))


class Place(NamedTuple):
    """Where a message is written: region and element."""

    region: int
    element: int


def places(program: Program) -> tuple[dict[Channel, list[Place]], int]:
    """Where each message lands, in order, by (peer, channel); and how many elements of staging the program takes.

    What is to be reduced has a place of its own in the staging memory, so that no sender need wait for it to be free.
    So has what a buffered lane receives; what it sends is copied behind all of that.
    """
    landings: dict[Channel, list[Place]] = {}
    staged = copied = 0
    for lane in program:
        for step in lane.steps:
            if isinstance(step, Recv):
                apart = step.reduce or lane.buffered
                place = Place(STAGING, staged) if apart else Place(step.into, step.start)
                landings.setdefault((step.peer, step.channel), []).append(place)
                staged += apart * lane.elements(step)
            elif isinstance(step, Send) and lane.buffered:
                copied += lane.elements(step)
    return landings, staged + copied


@lru_cache(maxsize=2048)
def places_of(schedule: Schedule, shape: Shape, index: int) -> tuple[Mapping[Channel, Sequence[Place]], int]:
    """Those of a group's rank.  Cached likewise: each of its peers looks at them."""
    return places(program_of(schedule, shape, index))


def copies(program: Program, staged: int) -> dict[Channel, list[int]]:
    """Where in the staging memory, of so many elements, what buffered lanes send is copied, by (peer, channel)."""
    sends = [(step, lane) for lane in program if lane.buffered for step in lane.steps if isinstance(step, Send)]
    at = staged - sum(lane.elements(step) for step, lane in sends)
    found: dict[Channel, list[int]] = {}
    for step, lane in sends:
        found.setdefault((step.peer, step.channel), []).append(at)
        at += lane.elements(step)
    return found


def connections(program: Program) -> list[Channel]:
    """Whom a program sends to or receives from, and on which channels, in order."""
    return sorted({channel for lane in program for channel in lane.channels})


def output_elements(program: Program) -> int:
    """How long the output of a program is: 0 if all is in the vector."""
    ends = [s.stop for s in steps(program) if isinstance(s, Recv) and s.into == OUTPUT]
    ends += [s.to + s.stop - s.start for s in steps(program) if isinstance(s, Copy) and s.into == OUTPUT]
    return max(ends, default=0)


def steps(program: Program) -> Iterator[Step]:
    """All steps of a program, lane by lane."""
    for lane in program:
        yield from lane.steps


class Waitable(Protocol):
    """A lane in progress: how many of its steps are done, and who waits until how many are."""

    at: int
    waiting: list[tuple[int, Any]]


W = TypeVar("W", bound=Waitable)


def released(lane: W) -> list[W]:
    """The lanes that waited for what this one has done by now."""
    if not lane.waiting:
        return []
    free = [other for until, other in lane.waiting if until <= lane.at]
    lane.waiting = [entry for entry in lane.waiting if entry[0] > lane.at]
    return free
