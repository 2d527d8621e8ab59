"""Rings along each dimension of a grid in turn; and along all of them in both directions at once.

Reduce-scatter along the first dimension over the whole vector, along the second over what that left to this rank, and
so on; then all-gather back, the last dimension first.  On a torus every message goes to a physical neighbour.

One such row of rings uses one cable of a node's 2 d at a time.  So the bucket algorithm cuts the vector in 2 d parts
(Jain & Sabharwal: Optimal bucket algorithms for large MPI collectives on torus interconnects, 2010; Sack & Gropp:
Collective algorithms for multiported torus networks, 2015): each begins with another dimension and goes on with the
ones behind it, half of them in one direction and half in the other, so that no two ever want the same cable where the
dimensions are equal.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from math import prod

from workloads.collectives import ring
from workloads.collectives.grids import parts
from workloads.collectives.grids.parts import Halves, Part, Within, coordinates, in_parts
from workloads.collectives.schedule import Lane, Program, Shape, Span, Step, spans


def _along(
    shape: Shape,
    index: int,
    order: Sequence[int],
    whole: Span,
    elements: Callable[[Span], Span] = lambda span: span,
    direction: int = 1,
    channel: int = 0,
) -> Halves:
    """Dimensions in this order.  `whole`: elements, or what `elements` says which ones are."""
    halves = Halves([], [])
    for dim in order:
        n, (at, left, right) = shape.dims[dim], _beside(shape, index, dim, direction)
        place = at * direction % n
        cut = spans(whole.stop - whole.start, n, whole.start)
        chunks = [elements(span) for span in cut]
        reducing, gathering = (
            ring.around(hops(n, place), chunks, left, right, shape.chunk, channel)
            for hops in (ring.reducing, ring.gathering)
        )
        halves = Halves(halves.reducing + reducing, gathering + halves.gathering)
        whole = cut[place]
    return halves


def _beside(shape: Shape, index: int, dim: int, direction: int = 1) -> tuple[int, int, int]:
    """A rank's place along a dimension, and its neighbours there."""
    n, stride = shape.dims[dim], prod(shape.dims[dim + 1 :])
    at = index // stride % n
    left, right = (index + ((at + step * direction) % n - at) * stride for step in (-1, 1))
    return at, left, right


def all_reduce(shape: Shape, index: int) -> Program:
    """One dimension after the other."""
    order = range(len(shape.dims))

    def steps() -> list[Step]:
        halves = _along(shape, index, order, Span(0, shape.count))
        return halves.reducing + halves.gathering

    sides = (_beside(shape, index, dim) for dim in order if shape.dims[dim] > 1)
    channels = {channel for _, left, right in sides for channel in ring.neighbours(left, right)}
    return [Lane(steps, shape.window, channels=channels)]


# All at once


def turns(dims: int, first: int) -> list[int]:
    """The dimensions in the order in which the part that begins with this one takes them."""
    return [(first + k) % dims for k in range(dims)]


def bucket_all_reduce(shape: Shape, index: int) -> Program:
    return parts.all_reduce(shape, _buckets(shape, index))


def bucket_reduce_scatter(shape: Shape, index: int) -> Program:
    return parts.reduce_scatter(shape, index, _buckets(shape, index))


def bucket_all_gather(shape: Shape, index: int) -> Program:
    return parts.all_gather(shape, index, _buckets(shape, index))


def _buckets(shape: Shape, index: int) -> list[Part]:
    """Blocks lie in an order in which what a rank passes on lies side by side: by the places on its rings, in turn."""
    return [_bucket(shape, index, first, direction) for first, direction in in_parts(shape.dims)]


def _bucket(shape: Shape, index: int, first: int, direction: int) -> Part:
    def halves(blocks: Within, channel: int) -> Halves:
        order = turns(len(shape.dims), first)
        return _along(shape, index, order, Span(0, shape.ranks), blocks, direction, channel)

    return Part(_order(shape.dims, first, direction), halves)


@lru_cache(maxsize=64)
def _order(dims: tuple[int, ...], first: int, direction: int) -> list[int]:
    def place(rank: int) -> list[int]:
        at = coordinates(rank, dims)
        return [at[dim] * direction % dims[dim] for dim in turns(len(dims), first)]

    return sorted(range(prod(dims)), key=place)
