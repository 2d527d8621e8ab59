"""Rings: all-reduce, reduce-scatter, all-gather; in one direction, in both, or several side by side.

The vector is cut into one chunk per rank.  On a reducing hop a rank's chunk goes to its right neighbour, which adds it
to its own; on a gathering hop it goes straight into its place.  A chunk that is more than one piece goes on piece by
piece: what has been reduced is sent while the next piece comes in.

A write never lands in memory still in use, without credits: what is to be reduced has its own place in staging memory,
and a gathered chunk has been through the rank it now comes back to: what it overwrites was sent, and had arrived at the
right neighbour, before its final value existed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from workloads.collectives.schedule import Channel, Lane, Program, Recv, Send, Shape, Span, Step, pieces, spans

RINGS = 16
"""Of several: each flow takes one of a NIC's ports, and so many are spread over them well enough."""


class Hop(NamedTuple):
    """One step of one rank: chunk `send` goes right, chunk `receive` comes from the left, to be reduced or kept."""

    send: int
    receive: int
    reduce: bool


def reducing(ranks: int, index: int) -> list[Hop]:
    """The hops after which rank `index` holds the reduced chunk `index`."""
    return [Hop((index - k - 1) % ranks, (index - k - 2) % ranks, True) for k in range(ranks - 1)]


def gathering(ranks: int, index: int) -> list[Hop]:
    """The hops after which rank `index`, which holds chunk `index`, holds all."""
    return [Hop((index - k) % ranks, (index - k - 1) % ranks, False) for k in range(ranks - 1)]


def both(ranks: int, index: int) -> list[Hop]:
    """Reduce-scatter, then all-gather: 2 (n - 1) hops."""
    return reducing(ranks, index) + gathering(ranks, index)


Hops = Callable[[int, int], list[Hop]]


def around(
    hops: Sequence[Hop], chunks: Sequence[Span], left: int, right: int, chunk: int | None, channel: int = 0
) -> list[Step]:
    """The steps of these hops.  Each hop sends what the hop before has received, and the first one what is ours."""
    if not hops:
        return []
    steps: list[Step] = [Send(right, *piece, channel) for piece in pieces(*chunks[hops[0].send], chunk)]
    for k, hop in enumerate(hops):
        for piece in pieces(*chunks[hop.receive], chunk):
            steps.append(Recv(left, *piece, hop.reduce, channel))
            if k + 1 < len(hops):
                steps.append(Send(right, *piece, channel))
    return steps


def neighbours(left: int, right: int, channel: int = 0) -> set[Channel]:
    """The connections that such steps take."""
    return {(left, channel), (right, channel)}


def _ring(shape: Shape, index: int, hops: Hops) -> Program:
    n = shape.ranks
    left, right = (index - 1) % n, (index + 1) % n

    def steps() -> list[Step]:
        return around(hops(n, index), shape.chunks, left, right, shape.chunk)

    return [Lane(steps, shape.window, channels=neighbours(left, right))]


def all_reduce(shape: Shape, index: int) -> Program:
    return _ring(shape, index, both)


def reduce_scatter(shape: Shape, index: int) -> Program:
    return _ring(shape, index, reducing)


def all_gather(shape: Shape, index: int) -> Program:
    return _ring(shape, index, gathering)


def _rings(shape: Shape, index: int, hops: Hops) -> Program:
    """RINGS at once, each with a part of every chunk, and over connections of its own."""
    n, lanes = shape.ranks, []
    chunks = [spans(chunk.stop - chunk.start, RINGS, chunk.start) for chunk in spans(shape.count, n)]
    for k in range(RINGS):
        parts = [chunk[k] for chunk in chunks]
        lanes.append(around(hops(n, index), parts, (index - 1) % n, (index + 1) % n, shape.chunk, k))
    return [Lane(steps, shape.window) for steps in lanes]


def rings_all_reduce(shape: Shape, index: int) -> Program:
    return _rings(shape, index, both)


def rings_reduce_scatter(shape: Shape, index: int) -> Program:
    return _rings(shape, index, reducing)


def rings_all_gather(shape: Shape, index: int) -> Program:
    return _rings(shape, index, gathering)


def bidirectional_all_reduce(shape: Shape, index: int) -> Program:
    """Two rings at once: the first half of the vector goes right, the second half left."""
    n = shape.ranks

    def lane(channel: int, half: Span) -> Lane:
        place, step = (index, 1) if channel == 0 else (-index % n, -1)  # the other ring counts the other way
        left, right = (index - step) % n, (index + step) % n

        def steps() -> list[Step]:
            chunks = spans(half.stop - half.start, n, half.start)
            return around(both(n, place), chunks, left, right, shape.chunk, channel)

        return Lane(steps, shape.window, channels=neighbours(left, right, channel))

    return [lane(channel, half) for channel, half in enumerate(spans(shape.count, 2))]
