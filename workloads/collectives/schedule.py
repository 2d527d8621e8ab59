"""What a schedule is: who sends which piece to whom, in which order, as pure data.

A rank's *program* is a few lanes.  A lane is what MSCCL calls a thread block: it does its steps in order, waits where
it must receive or for another lane, and never where it sends.  Lanes of one rank run side by side.
Everything follows from a `Shape`, which all ranks know, and a rank's index, so that every rank can work out where
another one wants what it sends it: nothing but memory keys goes over the wire beforehand.

Ranks are indices into their group here; positions are elements of the vector.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate, pairwise
from typing import Any, NamedTuple, Protocol, TypeVar, cast

from workloads.base.entry import Algorithm, named

VECTOR, STAGING, OUTPUT = range(3)
"""Memory of a rank: what it has, what has come and is not yet reduced, and the result where that has its own place."""


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


Step = Send | Recv | Copy | Wait


@dataclass(frozen=True)
class Lane:
    """Steps in order; at most `window` of its messages (`per_peer`: to each peer) are under way at a time.

    None: all that there are.  What must wait goes out in order.
    `buffered`: what it sends is copied when its turn comes, and what it receives lands apart and is copied when it is
    taken, as through NCCL's FIFOs: memory is free when its step is done.  Else messages go from memory to memory.
    """

    steps: Sequence[Step]
    window: int | None = None
    per_peer: bool = False
    buffered: bool = False


Program = Sequence[Lane]

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
    counts: tuple[tuple[int, ...], ...] = ()  # [from][to]: elements, where they are unequal

    def length(self, index: int) -> int:
        """Elements of rank `index`'s vector."""
        return sum(self.counts[index]) if self.counts else self.count

    @property
    def window(self) -> int | None:
        return None if self.chunk is None else WINDOW


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


def pieces(start: int, stop: int, chunk: int | None) -> list[Span]:
    """A span in pieces of at most `chunk` elements, equal but for one element; one piece at least, be it empty."""
    count = stop - start
    return list(spans(count, max(1, -(-count // chunk)) if chunk else 1, start))


class Place(NamedTuple):
    """Where a message is written: region and element."""

    region: int
    element: int


Channel = tuple[int, int]  # index of the peer in the group, channel


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
                staged += apart * (step.stop - step.start)
            elif isinstance(step, Send) and lane.buffered:
                copied += step.stop - step.start
    return landings, staged + copied


def copies(program: Program, staged: int) -> dict[Channel, list[int]]:
    """Where in the staging memory, of so many elements, what buffered lanes send is copied, by (peer, channel)."""
    sends = [step for lane in program if lane.buffered for step in lane.steps if isinstance(step, Send)]
    at = staged - sum(step.stop - step.start for step in sends)
    found: dict[Channel, list[int]] = {}
    for step in sends:
        found.setdefault((step.peer, step.channel), []).append(at)
        at += step.stop - step.start
    return found


def connections(program: Program) -> list[Channel]:
    """Whom a program sends to or receives from, and on which channels, in order."""
    return sorted({(step.peer, step.channel) for step in steps(program) if isinstance(step, Send | Recv)})


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
