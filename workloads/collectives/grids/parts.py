"""Collectives that cut the vector in parts, each of which goes its own way at the same time as the others.

A part has a block of every rank.  Its blocks lie in an order of its own, so that what is sent at a time lies side by
side.  An all-reduce leaves it to the ranks whose block is where in the vector.  In a reduce-scatter or all-gather each
rank has its chunk: blocks are brought in order in the output first, and back at the end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import NamedTuple

from workloads.collectives.schedule import (
    OUTPUT,
    VECTOR,
    Copy,
    Lane,
    Program,
    Recv,
    Send,
    Shape,
    Span,
    Step,
    lying,
    spans,
)

MOST_PARTS = 8  # as many channels as a group has for tasks (workloads/tasks/program.py)


class Halves(NamedTuple):
    """Of an all-reduce: until each rank has a reduced block, and from there on."""

    reducing: list[Step]
    gathering: list[Step]


Within = Callable[[Span], Span]
"""Which elements these blocks, side by side, are."""


@dataclass(frozen=True)
class Part:
    """`order`: the ranks, as their blocks lie.  `halves`: the steps, over blocks that lie somewhere, on a channel."""

    order: Sequence[int]
    halves: Callable[[Within, int], Halves]


def in_parts(dims: Sequence[int]) -> list[tuple[int, int]]:
    """The parts on a grid, one for each cable of a node: the dimension that it begins with, and its direction."""
    return [(first, direction) for direction in (1, -1) for first in range(len(dims))][:MOST_PARTS]


@lru_cache(maxsize=1 << 16)
def coordinates(rank: int, dims: Sequence[int]) -> tuple[int, ...]:
    """Row by row."""
    return tuple(rank // prod(dims[k + 1 :]) % n for k, n in enumerate(dims))


def number(at: Sequence[int], dims: Sequence[int]) -> int:
    """The rank at these coordinates."""
    return sum(x * prod(dims[k + 1 :]) for k, x in enumerate(at))


def all_reduce(shape: Shape, parts: Sequence[Part]) -> Program:
    lanes = []
    for channel, (part, whole) in enumerate(zip(parts, spans(shape.count, len(parts)), strict=True)):
        blocks = spans(whole.stop - whole.start, shape.ranks, whole.start)
        halves = part.halves(_within(blocks), channel)
        lanes.append(Lane(halves.reducing + halves.gathering, shape.window))
    return lanes


def reduce_scatter(shape: Shape, index: int, parts: Sequence[Part]) -> Program:
    lanes = []
    for channel, part, slices, blocks in _sliced(shape, parts):
        forth = [Copy(*piece, block.start) for piece, block in zip(slices, blocks, strict=True)]
        mine = part.order.index(index)
        back = Copy(*blocks[mine], slices[mine].start, OUTPUT, VECTOR)
        steps = _elsewhere(part.halves(_within(blocks), channel).reducing)
        lanes.append(Lane([*forth, *steps, back], shape.window))
    return lanes


def all_gather(shape: Shape, index: int, parts: Sequence[Part]) -> Program:
    lanes = []
    for channel, part, slices, blocks in _sliced(shape, parts):
        mine = part.order.index(index)
        forth = Copy(*slices[mine], blocks[mine].start)
        back = [
            Copy(*block, piece.start, OUTPUT, VECTOR)
            for rank, piece, block in zip(part.order, slices, blocks, strict=True)
            if rank != index
        ]
        steps = _elsewhere(part.halves(_within(blocks), channel).gathering)
        lanes.append(Lane([forth, *steps, *back], shape.window))
    return lanes


def _sliced(shape: Shape, parts: Sequence[Part]) -> Iterator[tuple[int, Part, list[Span], Sequence[Span]]]:
    """The parts, with their share of each rank's chunk, and where that lies in the output."""
    at, chunks = 0, shape.chunks
    for channel, part in enumerate(parts):
        slices = []
        for start, stop in (chunks[rank] for rank in part.order):
            cut = spans(stop - start, len(parts))[channel]
            slices.append(Span(start + cut.start, start + cut.stop))
        blocks = lying([piece.stop - piece.start for piece in slices], at)
        yield channel, part, slices, blocks
        at = blocks[-1].stop


def _within(blocks: Sequence[Span]) -> Within:
    return lambda some: Span(blocks[some.start].start, blocks[some.stop - 1].stop)


def _elsewhere(steps: Sequence[Step]) -> list[Step]:
    """The same in the output."""
    return [
        step._replace(into=OUTPUT) if isinstance(step, Recv) else step._replace(source=OUTPUT)
        for step in steps
        if isinstance(step, Send | Recv)
    ]
