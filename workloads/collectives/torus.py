"""All-reduce along each dimension of a grid in turn: a ring of its own per dimension.

Reduce-scatter along the first dimension over the whole vector, along the second over what that left to this rank, and
so on; then all-gather back, the last dimension first.  On a torus every message goes to a physical neighbour.
Hierarchical all-reduce is the same on the grid of servers and GPUs: scale-up domain first, then the rails.
"""

from __future__ import annotations

from math import prod

from workloads.collectives import ring
from workloads.collectives.schedule import Lane, Program, Shape, Span, Step, spans


def _along(shape: Shape, index: int, order: list[int]) -> Program:
    """Dimensions in this order."""
    sides = {dim: _beside(shape, index, dim) for dim in order}

    def steps() -> list[Step]:
        whole = Span(0, shape.count)
        reduced: list[Step] = []
        gathered: list[Step] = []
        for dim, (place, left, right) in sides.items():
            n = shape.dims[dim]
            chunks = spans(whole.stop - whole.start, n, whole.start)
            reduced += ring.around(ring.reducing(n, place), chunks, left, right, shape.chunk)
            gathered = ring.around(ring.gathering(n, place), chunks, left, right, shape.chunk) + gathered
            whole = chunks[place]
        return reduced + gathered

    beside = (ring.neighbours(left, right) for dim, (_, left, right) in sides.items() if shape.dims[dim] > 1)
    channels = {channel for its in beside for channel in its}
    return [Lane(steps, shape.window, channels=channels)]


def _beside(shape: Shape, index: int, dim: int) -> tuple[int, int, int]:
    """A rank's place along a dimension, and its neighbours there."""
    n, stride = shape.dims[dim], prod(shape.dims[dim + 1 :])
    place = index // stride % n
    left, right = (index + ((place + step) % n - place) * stride for step in (-1, 1))
    return place, left, right


def all_reduce(shape: Shape, index: int) -> Program:
    return _along(shape, index, list(range(len(shape.dims))))


def hierarchical_all_reduce(shape: Shape, index: int) -> Program:
    """`dims` are servers and GPUs of a server: the last dimension first."""
    return _along(shape, index, list(reversed(range(len(shape.dims)))))
