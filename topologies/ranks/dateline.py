"""The dateline of a torus or ring: what has still to cross a dimension's wrap-around cable, in that dimension.

controllers/routing/dateline.py says what it is good for.
"""

from __future__ import annotations

from collections.abc import Sequence


def beyond(size: int, at: int, *, upwards: bool) -> range:
    """Where in a dimension a way must end that goes on from `at` in this direction, to have the dateline before it."""
    if size <= 2:  # no circle
        return range(0)
    return range(at) if upwards else range(at + 1, size)


def direction(sizes: Sequence[int], here: Sequence[int], there: Sequence[int]) -> tuple[int, bool]:
    """Of a cable to a neighbour: its dimension, and whether it leads upwards there."""
    axis = next(k for k, (a, b) in enumerate(zip(here, there, strict=True)) if a != b)
    return axis, (there[axis] - here[axis]) % sizes[axis] == 1
