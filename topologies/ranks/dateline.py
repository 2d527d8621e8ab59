"""The dateline of a torus or ring: what has still to cross a dimension's wrap-around cable, in that dimension.

controllers/routing/dateline.py says what it is good for.
"""

from __future__ import annotations

from collections.abc import Sequence

Place = Sequence[int]


def beyond(sizes: Sequence[int], here: Place, there: Place) -> tuple[int, range]:
    """Of a cable to a neighbour: its dimension, and where in that a way over this cable must end to wrap around."""
    axis = next(k for k, (a, b) in enumerate(zip(here, there, strict=True)) if a != b)
    size, at = sizes[axis], here[axis]
    if size <= 2:  # no circle
        return axis, range(0)
    upwards = (there[axis] - at) % size == 1
    return axis, range(at) if upwards else range(at + 1, size)
