"""Parallel aggregated trees: all-gather, and backwards reduce-scatter (Jeaugey: PAT, 2025, arXiv 2506.20252).

Every rank's chunk goes down a binomial tree of its own, the farthest first; the trees are the same but for where they
begin.  So in each round all ranks send equally far, and one message holds chunks of several trees, as many as there is
room for in a buffer (`chunk`); a round fills eight of them, as NCCL has slots.  While chunks are few, rounds double
them, as Bruck's backwards, whose largest messages then go to the nearest rank.  When a round is full, the rest of the
trees is gone through one edge after the other, depth first, so that what waits to be passed on is a logarithmic number
of rounds' buffers.  With `a` chunks in a round, a power of two: log2 a + n/a - 1 rounds.

Chunks lie in the output in an order in which those of a message lie side by side: by the bits of how far they have
come, backwards.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from workloads.collectives.schedule import (
    OUTPUT,
    VECTOR,
    WINDOW,
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
    """Of an all-gather whose rounds hold so many chunks at most."""
    return [*_doubling(ranks, most), *_trees(ranks, most)]


def backwards(ranks: int, most: int) -> list[Round]:
    """Of a reduce-scatter: the farthest places of the trees first, as NCCL has it; then ever fewer chunks."""
    trees = sorted(_trees(ranks, most), key=lambda one: one.far + one.come[0], reverse=True)
    return [*trees, *reversed(_doubling(ranks, most))]


def _nearest(ranks: int, most: int) -> int:
    """The nearest distance over which all trees go in one round; 0: all distances."""
    far = 1 << (ranks - 1).bit_length() - 1
    while far and -(-ranks // far) <= most:
        far //= 2
    return far


def _doubling(ranks: int, most: int) -> list[Round]:
    far = 1 << (ranks - 1).bit_length() - 1
    found = []
    while far > _nearest(ranks, most):
        found.append(Round(far, range(0, ranks - far, 2 * far)))
        far //= 2
    return found


def _trees(ranks: int, most: int) -> Iterator[Round]:
    nearest = _nearest(ranks, most)
    tops = range(0, ranks, 2 * nearest) if nearest else ()

    def below(near: int, far: int) -> Iterator[Round]:
        while far:
            if come := [top + near for top in tops if top + near + far < ranks]:
                yield Round(far, come)
            yield from below(near + far, far // 2)
            far //= 2

    return below(0, nearest)


class Room(NamedTuple):
    """Chunks in a message, and in a round, at most: powers of two (NCCL: src/include/collectives.h)."""

    message: int
    round: int


def room(ranks: int, chunk: int, buffer: int | None) -> Room:
    """Of chunks and buffers of so many elements, or bytes."""

    def doubled(most: int, begin: int = 1) -> int:
        while 2 * begin <= most and begin < ranks // 2:
            begin *= 2
        return begin

    message = doubled(buffer // chunk if chunk and buffer else ranks)
    return Room(message, doubled(WINDOW * message, message))


def room_of(shape: Shape) -> Room:
    longest = max(span.stop - span.start for span in shape.chunks)
    return room(shape.ranks, longest, shape.chunk)


class _Memory:
    """Where chunks lie at a rank, by how far they have come."""

    def __init__(self, shape: Shape, index: int) -> None:
        n, self.room = shape.ranks, room_of(shape)
        bits = (n - 1).bit_length()
        chunks = shape.chunks
        self.chunks = [chunks[(index - come) % n] for come in range(n)]
        self.order = sorted(range(n), key=lambda come: f"{come:0{bits}b}"[::-1])
        self.place = {come: k for k, come in enumerate(self.order)}
        lengths = [span.stop - span.start for span in self.chunks]
        self.blocks = lying([lengths[come] for come in self.order])

    def spans(self, come: Sequence[int], far: int) -> list[tuple[Span, Span]]:
        """Messages of a round: where each lies here, and where what has come so much further does."""
        found: list[tuple[Span, Span]] = []
        after, held = (-1, -1), 0
        for one in sorted(come, key=self.place.__getitem__):
            places = self.place[one], self.place[one + far]
            here, there = (self.blocks[place] for place in places)
            if places == after and held < self.room.message:
                here, there = Span(found[-1][0].start, here.stop), Span(found.pop()[1].start, there.stop)
            else:
                held = 0
            found.append((here, there))
            after, held = (places[0] + 1, places[1] + 1), held + 1
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
    for far, come in rounds(n, memory.room.round):
        both = memory.spans(come, far)
        to.append(((index + far) % n, [here for here, _ in both]))
        at.append(((index - far) % n, [there for _, there in both]))
    forth = Copy(*memory.chunks[0], 0)
    back = [Copy(*memory.blocks[memory.place[come]], memory.chunks[come].start, OUTPUT, VECTOR) for come in range(1, n)]
    return [Lane([forth, *_steps(shape, to, at, False), *back], shape.window)]


def reduce_scatter(shape: Shape, index: int) -> Program:
    n, memory = shape.ranks, _Memory(shape, index)
    to, at = [], []
    for far, come in backwards(n, memory.room.round):
        both = memory.spans(come, far)
        to.append(((index - far) % n, [there for _, there in both]))
        at.append(((index + far) % n, [here for here, _ in both]))
    forth = [Copy(*memory.chunks[come], memory.blocks[memory.place[come]].start) for come in range(n)]
    back = Copy(*memory.blocks[0], memory.chunks[0].start, OUTPUT, VECTOR)
    return [Lane([*forth, *_steps(shape, to, at, True), back], shape.window)]
