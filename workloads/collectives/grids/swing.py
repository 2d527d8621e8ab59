"""Swing on a grid (De Sensi, Bonato, Saam, Hoefler: Swing: Short-cutting rings for higher bandwidth allreduce, 2024).

As recursive halving and doubling, with partners that are nearer: in step s of a dimension an even place's partner is
rho(s) = (1 - (-2)^(s+1)) / 3 = 1, -1, 3, -5, .. places on, an odd one's as many back.  Dimensions take turns.  There
are 2 d copies, each for a part of the vector: they begin with different dimensions, half of them mirrored.

In the all-gather, which goes backwards, a rank sends what its partner does not have yet.  With an even number of places
that reaches each rank once, and the reduce-scatter is the same, backwards.  With a power of two what a message holds is
a whole subtree, so that blocks that lie in the order of the subtrees lie side by side.

For small vectors all of a part goes to the partner in each step: half as many steps, for powers of two only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from math import prod

from workloads.collectives.grids import parts
from workloads.collectives.grids.hypercube import exchange_elements, exchanged, exchanging
from workloads.collectives.grids.parts import Halves, Part, Within, coordinates, in_parts, number
from workloads.collectives.grids.torus import turns
from workloads.collectives.schedule import Lane, Program, Recv, Send, Shape, Span, Step, spans


def partner(place: int, places: int, step: int, direction: int = 1) -> int:
    """Of a place in a dimension."""
    far: int = (1 - (-2) ** (step + 1)) // 3
    return (place + (far if place % 2 == 0 else -far) * direction) % places


def steps_of(dims: Sequence[int], first: int) -> list[tuple[int, int]]:
    """Of the reduce-scatter: a dimension, and which of its steps.  A dimension that is through is left out."""
    left = [(n - 1).bit_length() for n in dims]
    return [(dim, k) for k in range(max(left)) for dim in turns(len(dims), first) if k < left[dim]]


@lru_cache(maxsize=256)
def held(places: int, direction: int) -> list[list[frozenset[int]]]:
    """[step][place]: whose blocks a place has after this step of the all-gather, the last index before all of them."""
    has = [frozenset({place}) for place in range(places)]
    by_step = [has]
    for step in reversed(range((places - 1).bit_length())):
        has = [has[place] | has[partner(place, places, step, direction)] for place in range(places)]
        by_step.append(has)
    return by_step[::-1]


@dataclass(frozen=True)
class Swinging:
    """One of the copies: the dimension that it begins with, and whether it is mirrored (-1)."""

    dims: tuple[int, ...]
    first: int
    direction: int

    def partner(self, rank: int, dim: int, step: int) -> int:
        at = list(coordinates(rank, self.dims))
        at[dim] = partner(at[dim], self.dims[dim], step, self.direction)
        return number(at, self.dims)

    def edges(self, dim: int, step: int) -> list[tuple[int, int]]:
        """Of a dimension's places: who sends to whom in a step."""
        n = self.dims[dim]
        return [(place, partner(place, n, step, self.direction)) for place in range(n)]

    @property
    def tables(self) -> list[list[list[frozenset[int]]]]:
        return [held(n, self.direction) for n in self.dims]

    def order(self) -> list[int]:
        """The ranks by subtree: at each step one of the two halves first."""
        return sorted(range(prod(self.dims)), key=self._sides)

    def _sides(self, rank: int) -> list[bool]:
        sides = []
        for dim, step in steps_of(self.dims, self.first):
            place = coordinates(rank, self.dims)[dim]
            has = held(self.dims[dim], self.direction)[step + 1]
            sides.append(min(has[place]) > min(has[partner(place, self.dims[dim], step, self.direction)]))
        return sides


@lru_cache(maxsize=64)
def _order(copy: Swinging) -> tuple[list[int], list[int]]:
    """Whose block is where, and where whose block is."""
    order = copy.order()
    places = [0] * len(order)
    for place, rank in enumerate(order):
        places[rank] = place
    return order, places


@lru_cache(maxsize=1 << 14)
def _runs(copy: Swinging, has: tuple[frozenset[int], ...]) -> list[Span]:
    """Where the blocks lie that have one of these places in each dimension, in as few spans as can be."""
    _, places = _order(copy)
    runs: list[Span] = []
    for place in sorted(places[number(block, copy.dims)] for block in product(*has)):
        if runs and runs[-1].stop == place:
            runs[-1] = Span(runs[-1].start, place + 1)
        else:
            runs.append(Span(place, place + 1))
    return runs


def _halves(copy: Swinging, index: int, blocks: Within, channel: int) -> Halves:
    at = coordinates(index, copy.dims)
    done = [0] * len(at)

    def spans_of(dim: int, some: frozenset[int]) -> list[Span]:
        """Of the blocks that have one of these places in `dim`, and what is at this rank in the others."""
        has = [table[k][x] for table, k, x in zip(copy.tables, done, at, strict=True)]
        has[dim] = some
        return [blocks(run) for run in _runs(copy, tuple(has))]

    reducing: list[Step] = []
    gathering: list[Step] = []
    for dim, step in steps_of(copy.dims, copy.first):
        peer = copy.partner(index, dim, step)
        before = copy.tables[dim][step + 1]
        mine, its = before[at[dim]], before[coordinates(peer, copy.dims)[dim]]
        there, here = spans_of(dim, its - mine), spans_of(dim, mine - its)
        reducing += [Send(peer, *span, channel) for span in there]
        reducing += [Recv(peer, *span, True, channel) for span in here]
        gathered = [Send(peer, *span, channel) for span in here]
        gathering = [*gathered, *(Recv(peer, *span, False, channel) for span in there), *gathering]
        done[dim] = step + 1
    return Halves(reducing, gathering)


def copies(shape: Shape) -> list[Swinging]:
    return [Swinging(shape.dims, *its) for its in in_parts(shape.dims)]


def _parts(shape: Shape, index: int) -> list[Part]:
    return [
        Part(_order(copy)[0], lambda blocks, channel, copy=copy: _halves(copy, index, blocks, channel))  # type: ignore[misc]
        for copy in copies(shape)
    ]


def all_reduce(shape: Shape, index: int) -> Program:
    return parts.all_reduce(shape, _parts(shape, index))


def reduce_scatter(shape: Shape, index: int) -> Program:
    return parts.reduce_scatter(shape, index, _parts(shape, index))


def all_gather(shape: Shape, index: int) -> Program:
    return parts.all_gather(shape, index, _parts(shape, index))


def small_all_reduce(shape: Shape, index: int) -> Program:
    """All of a part in each step."""
    lanes, at = [], 0
    its = copies(shape)
    for channel, (copy, whole) in enumerate(zip(its, spans(shape.count, len(its)), strict=True)):
        peers = [copy.partner(index, dim, step) for dim, step in steps_of(copy.dims, copy.first)]
        cut = exchanged(shape, whole)
        lanes.append(Lane(exchanging(cut, peers, at, channel)))
        at += exchange_elements(cut, peers)
    return lanes
