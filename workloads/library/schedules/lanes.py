"""Lanes of a library's schedules: each a channel, with the clock of a thread block."""

from __future__ import annotations

from collections.abc import Sequence

from workloads.collectives.manner import Manner
from workloads.collectives.schedule import Clock, Lane, Recv, Shape, Span, Step, Work, lying
from workloads.library.costs import STREAMED
from workloads.library.pieces import Cut


def manner_of(shape: Shape) -> Manner:
    assert shape.library is not None
    return shape.library


def lane(shape: Shape, index: int, steps: Sequence[Step], *, byte: float = 1.0) -> Lane:
    """`byte`: how much longer a byte takes it, which has but a part of a thread block's threads."""
    its = manner_of(shape)
    clock = Clock(its.launch, its.slice, byte * its.byte * its.width, its.peers(index, shape.ranks))
    return Lane(steps, its.slots, per_peer=True, buffered=its.padded > 1, clock=clock, padded=its.padded)


def taken(shape: Shape, piece: Span, *receives: Recv) -> list[Step]:
    """A piece that comes, and passes the clock: meanwhile, where its lines are taken one by one."""
    work = Work(piece.stop - piece.start)
    return [work, *receives] if manner_of(shape).protocol in STREAMED else [*receives, work]


def slices(shape: Shape, span: Span) -> list[Span]:
    """A chunk's."""
    its = manner_of(shape)
    cut = Cut(its.chunk, its.slices, its.least, its.slots)
    lengths = [nbytes // its.width for nbytes in cut.slices_of((span.stop - span.start) * its.width)]
    return [*map(Span._make, lying(lengths, span.start))]


def pieces_of(shape: Shape, share: Span) -> list[Span]:
    """A share in chunks, one behind the other."""
    its = manner_of(shape)
    most = max(1, its.chunk // its.width)
    return [Span(start, min(start + most, share.stop)) for start in range(share.start, share.stop, most)]
