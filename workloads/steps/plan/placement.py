"""Which dimension of a plan lies along which axis of the fabric.

A fabric has axes: in a rail topology `scale_up`, the GPUs of a server, and `rail`, the servers (topologies/ranks).  The
dimensions that are placed on an axis share it, the first one innermost; together they have to divide it.  Whatever is
placed nowhere takes the places that are left, in rank order, tensor innermost: without any placement that is Megatron's
order over all ranks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import product
from math import prod
from typing import Any

from topologies.graph.mistake import Mistake
from workloads.steps.plan.parallel import DIMENSIONS, Layout, Parallel, Place

Axis = tuple[str, int]
"""Name and length."""


class CannotPlace(Mistake, ValueError):
    """`key` is the dimension that is to blame (""; the plan as a whole), `hint` what is allowed."""

    def __init__(self, key: str, what: str, hint: str) -> None:
        super().__init__(what, hint)
        self.key = key


def placed(parallel: Parallel, place: Mapping[str, str], axes: Sequence[Axis]) -> Layout:
    """The ranks of a plan.  `axes`: the outermost first, as ranks count them.  Raises CannotPlace."""
    rank_at = places(parallel, place, axes)
    grid = product(*(range(getattr(parallel, name)) for name in DIMENSIONS))
    return Layout(parallel, {at: rank_at(vars(at)) for at in (Place(*index) for index in grid)})


def places(parallel: Parallel, place: Mapping[str, str], axes: Sequence[Axis]) -> Callable[[Mapping[str, Any]], Any]:
    """The rank at a place, by its number in each dimension; of arrays of numbers an array.  Raises CannotPlace."""
    lengths = dict(axes)
    if parallel.ranks != prod(lengths.values()):
        sizes = " x ".join(f"{name} {getattr(parallel, name)}" for name in DIMENSIONS)
        raise CannotPlace(
            "",
            f"{sizes} are {parallel.ranks} ranks, and there are {prod(lengths.values())}",
            "their product is the number of ranks; sequence takes ranks of tensor, expert those of context and data",
        )
    on: dict[str, list[str]] = {name: [] for name in lengths}
    for dimension, axis in place.items():
        if axis not in lengths:
            names = ", ".join(f"{name} ({n})" for name, n in axes)
            raise CannotPlace(dimension, f"this fabric has no axis {axis!r}", f"it has {names}")
        on[axis].append(dimension)
        together = prod(getattr(parallel, d) for d in on[axis])
        if lengths[axis] % together:
            sizes, length = " x ".join(f"{d} {getattr(parallel, d)}" for d in on[axis]), lengths[axis]
            what = f"{sizes} does not divide {axis}, which has {length} places"
            raise CannotPlace(dimension, what, f"a divisor of {length}")
    left = [name for name in DIMENSIONS if name not in place]
    spare = {axis: n // prod(getattr(parallel, d) for d in on[axis]) for axis, n in lengths.items()}

    def rank_at(index: Mapping[str, Any]) -> Any:
        rest = _number([(index[d], getattr(parallel, d)) for d in left])
        rank, stride = 0, 1
        for axis, length in reversed(axes):
            rest, own = divmod(rest, spare[axis])
            inside = [(index[d], getattr(parallel, d)) for d in on[axis]]
            rank += stride * _number([*inside, (own, spare[axis])])
            stride *= length
        return rank

    return rank_at


def _number(digits: Sequence[tuple[Any, int]]) -> Any:
    """Digits with their bases, the lowest first, as a number."""
    number, stride = 0, 1
    for digit, base in digits:
        number += digit * stride
        stride *= base
    return number
