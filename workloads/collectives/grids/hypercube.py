"""Exchanges along the dimensions of a hypercube: in step k with the rank whose number differs in bit k.

Recursive doubling (Thakur, Rabenseifner, Gropp 2005): each step exchanges the whole vector, so that there are only
log2 n of them: for small vectors.  All-to-all (Johnsson & Ho 1989; Foster 1995): each step hands on all blocks that
belong in the other half, those of others, too: log2 n messages of half a vector instead of n - 1 of a block.
"""

from __future__ import annotations

from collections.abc import Sequence

from workloads.collectives.exchange import landings, parts
from workloads.collectives.halving import Folded
from workloads.collectives.schedule import (
    OUTPUT,
    VECTOR,
    Copy,
    Lane,
    Place,
    Program,
    Recv,
    Send,
    Shape,
    Span,
    Step,
    pieces,
)

MOST_EXCHANGED = 16
"""Times as much as goes without waiting: larger vectors are exchanged in pieces, one after the other."""


def exchanged(shape: Shape, whole: Span) -> list[Span]:
    """The pieces of a vector, or a part."""
    return pieces(*whole, MOST_EXCHANGED * shape.eager or None)


def exchanging(cut: Sequence[Span], peers: Sequence[int], at: int, channel: int = 0) -> list[Step]:
    """With one after the other: what we have reduced so far against what they have.

    What is sent is left alone in the output, from `at` on, while ours goes on.  Who sends a piece to us has received
    ours before it: so every other one takes the same place.
    """
    steps: list[Step] = []
    longest = max(span.stop - span.start for span in cut)
    for k, span in enumerate(cut):
        for step, peer in enumerate(peers):
            begin = at + (k % 2 * len(peers) + step) * longest
            end = begin + span.stop - span.start
            steps += [Copy(*span, begin), Send(peer, begin, end, channel, OUTPUT), Recv(peer, *span, True, channel)]
    return steps


def exchange_elements(cut: Sequence[Span], peers: Sequence[int]) -> int:
    """Of the output that this takes."""
    return min(2, len(cut)) * len(peers) * max(span.stop - span.start for span in cut)


def all_reduce(shape: Shape, index: int) -> Program:
    """Where n is no power of two, some ranks stand for another, as in halving and doubling."""
    folded = Folded(shape.ranks)
    place, whole = folded.participant(index), Span(0, shape.count)
    if place is None:
        return [Lane([Send(index - 1, *whole), Recv(index - 1, *whole)])]
    peers = [folded.rank(place ^ (1 << k)) for k in range(folded.participants.bit_length() - 1)]
    steps = exchanging(exchanged(shape, whole), peers, 0)
    if (other := folded.stands_for(index)) is not None:
        steps = [Recv(other, *whole, True), *steps, Send(other, *whole)]
    return [Lane(steps)]


def all_to_all(shape: Shape, index: int) -> Program:
    """For powers of two.  What is handed on is brought together first, behind the result."""
    n = shape.ranks
    results = landings(shape, index)
    at = results[-1].stop
    lengths = [span.stop - span.start for span in parts(shape, index)]  # by receiver, whoever sends
    here = {(index, to): Place(VECTOR, span.start) for to, span in enumerate(parts(shape, index))}
    steps: list[Step] = []

    def copied(block: tuple[int, int], to: int) -> int:
        place, length = here[block], lengths[block[1]]
        steps.append(Copy(place.element, place.element + length, to, place.region))
        return to + length

    for bit in (1 << k for k in range(n.bit_length() - 1)):
        going = sorted((block for block in here if (block[1] ^ index) & bit), key=lambda b: (b[1], b[0]))
        begin = at
        for block in going:
            at = copied(block, at)
            del here[block]
        steps.append(Send(index ^ bit, begin, at, 0, OUTPUT))
        begin = at
        for source, to in going:  # what our partner hands on to us
            here[source ^ bit, to ^ bit] = Place(OUTPUT, at)
            at += lengths[to ^ bit]
        steps.append(Recv(index ^ bit, begin, at, into=OUTPUT))
    for source, landed in enumerate(results):
        copied((source, index), landed.start)
    return [Lane(steps)]
