"""Parallel aggregated trees: all-gather, and backwards reduce-scatter (Jeaugey: PAT, 2025, arXiv 2506.20252).

Every rank's chunk goes down a binomial tree of its own, the farthest first; the trees are the same but for where they
begin.  So in each round all ranks send equally far, and one message holds chunks of several trees, as many as there is
room for in a buffer (`chunk`).  While they are few, rounds double them, as Bruck's backwards, whose largest messages
then go to the nearest rank.  When a message is full, the rest of the trees is gone through one edge after the other,
depth first, so that what waits to be passed on is a logarithmic number of buffers.  With messages of
`a` chunks, powers of two: log2 a + n/a - 1 rounds.

Chunks lie in the output in an order in which those of a message lie side by side: by the bits of how far they have
come, backwards.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
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
    pieces,
)

BUFFER_BYTES = 512 << 10
"""NCCL's: 4 MiB, in 8 slots."""


class Round(NamedTuple):
    """Each rank sends so far the chunks that have come to it from so many ranks back."""

    far: int
    come: Sequence[int]


def rounds(ranks: int, most: int) -> list[Round]:
    """Of an all-gather whose messages hold so many chunks at most."""
    found = []
    far = 1 << (ranks - 1).bit_length() - 1
    while far and -(-ranks // far) <= most:
        found.append(Round(far, range(0, ranks - far, 2 * far)))
        far //= 2
    tops = range(0, ranks, 2 * far) if far else ()

    def below(near: int, far: int) -> Iterator[Round]:
        while far:
            if come := [top + near for top in tops if top + near + far < ranks]:
                yield Round(far, come)
            yield from below(near + far, far // 2)
            far //= 2

    return [*found, *below(0, far)]


def most_of(shape: Shape) -> int:
    """How many chunks a message holds, at most."""
    longest = max(span.stop - span.start for span in shape.chunks)
    return max(1, shape.chunk // longest) if shape.chunk and longest else shape.ranks


class _Memory:
    """Where chunks lie at a rank, by how far they have come."""

    def __init__(self, shape: Shape, index: int) -> None:
        n = shape.ranks
        bits = (n - 1).bit_length()
        chunks = shape.chunks
        self.chunks = [chunks[(index - come) % n] for come in range(n)]
        self.order = sorted(range(n), key=lambda come: f"{come:0{bits}b}"[::-1])
        self.place = {come: k for k, come in enumerate(self.order)}
        lengths = [span.stop - span.start for span in self.chunks]
        self.blocks = lying([lengths[come] for come in self.order])

    def spans(self, come: Sequence[int], far: int) -> list[tuple[Span, Span]]:
        """Of a message, in as few spans as can be: where it lies here, and where what has come so much further does."""
        found: list[tuple[Span, Span]] = []
        after = -1, -1
        for one in sorted(come, key=self.place.__getitem__):
            places = self.place[one], self.place[one + far]
            here, there = (self.blocks[place] for place in places)
            if places == after:
                here, there = Span(found[-1][0].start, here.stop), Span(found.pop()[1].start, there.stop)
            found.append((here, there))
            after = places[0] + 1, places[1] + 1
        return found


def _steps(
    shape: Shape, to: Sequence[tuple[int, list[Span]]], at: Sequence[tuple[int, list[Span]]], reduce: bool
) -> list[Step]:
    """Rounds of what is sent and what is received.  What is passed on at once goes piece by piece."""
    steps: list[Step] = []
    following = False
    for k, ((peer, sent), (source, received)) in enumerate(zip(to, at, strict=True)):
        if not following:
            steps += [Send(peer, *piece, 0, OUTPUT) for span in sent for piece in pieces(*span, shape.chunk)]
        following = k + 1 < len(to) and to[k + 1][1] == received
        for span in received:
            for piece in pieces(*span, shape.chunk):
                steps.append(Recv(source, *piece, reduce, into=OUTPUT))
                if following:
                    steps.append(Send(to[k + 1][0], *piece, 0, OUTPUT))
    return steps


def all_gather(shape: Shape, index: int) -> Program:
    n, memory = shape.ranks, _Memory(shape, index)
    to, at = [], []
    for far, come in rounds(n, most_of(shape)):
        both = memory.spans(come, far)
        to.append(((index + far) % n, [here for here, _ in both]))
        at.append(((index - far) % n, [there for _, there in both]))
    forth = Copy(*memory.chunks[0], 0)
    back = [Copy(*memory.blocks[memory.place[come]], memory.chunks[come].start, OUTPUT, VECTOR) for come in range(1, n)]
    return [Lane([forth, *_steps(shape, to, at, False), *back], shape.window)]


def reduce_scatter(shape: Shape, index: int) -> Program:
    n, memory = shape.ranks, _Memory(shape, index)
    to, at = [], []
    for far, come in reversed(rounds(n, most_of(shape))):
        both = memory.spans(come, far)
        to.append(((index - far) % n, [there for _, there in both]))
        at.append(((index + far) % n, [here for here, _ in both]))
    forth = [Copy(*memory.chunks[come], memory.blocks[memory.place[come]].start) for come in range(n)]
    back = Copy(*memory.blocks[0], memory.chunks[0].start, OUTPUT, VECTOR)
    return [Lane([*forth, *_steps(shape, to, at, True), back], shape.window)]
