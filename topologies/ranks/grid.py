"""Groups of ranks that are grids: sub-grids of a torus, or servers times GPUs.

Ranks count the places of such a fabric row by row, so that the sorted ranks of a sub-grid do so, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from math import prod

from topologies.graph.fabric import Fabric
from topologies.graph.mistake import Mistake
from topologies.kinds import dimensions


class NoGrid(Mistake, ValueError):
    """A group without the shape that is asked for: `what` says why, `hint` what would have it."""


def grid(fabric: Fabric, ranks: Sequence[int]) -> tuple[int, ...]:
    """The dimensions of the grid that `ranks` are, those of one place left out.  Raises NoGrid."""
    dims = dimensions(fabric)
    if not dims:
        raise NoGrid(f"the ranks of a {fabric.kind} have no coordinates", "a torus, ring or rail has")
    return tuple(n for n in lengths(dims, ranks) if n > 1)


def in_one_domain(fabric: Fabric, ranks: Sequence[int]) -> None:
    """Raises NoGrid unless these ranks are GPUs of one scale-up domain."""
    names = {fabric.nics[rank].name for rank in ranks}
    if not any(names <= set(domain) for domain in fabric.scale_up):
        hint = "GPUs of one server, of a rail or a clos with `gpus`"
        raise NoGrid("these ranks are not in one scale-up domain", hint)


def servers_and_gpus(fabric: Fabric, ranks: Sequence[int]) -> tuple[int, int]:
    """How many servers, and how many GPUs in the scale-up domain of each: several of both.  Raises NoGrid."""
    if not fabric.scale_up:
        raise NoGrid("there is no scale-up domain", "a rail, or a clos with `gpus`, has one per server")
    servers, gpus = lengths(dimensions(fabric), ranks)
    if gpus == 1:
        raise NoGrid("no two of these ranks share a scale-up domain", "name at least two GPUs of each server")
    if servers == 1:
        raise NoGrid("these ranks are of one server", "name ranks of several")
    return servers, gpus


def lengths(dims: Sequence[int], ranks: Sequence[int]) -> list[int]:
    """How many places a group has along each dimension, if it is all that these places make up."""
    strides = [prod(dims[k + 1 :]) for k in range(len(dims))]
    places = [sorted({rank // stride % n for rank in ranks}) for n, stride in zip(dims, strides, strict=True)]
    whole = {sum(x * stride for x, stride in zip(at, strides, strict=True)) for at in product(*places)}
    if whole != set(ranks):
        size = " x ".join(str(len(p)) for p in places)
        missing = sorted(whole - set(ranks))
        raise NoGrid(f"these ranks are no grid: {size} would have rank {missing[0]}, too", "whole rows and columns")
    return [len(p) for p in places]
