"""Recursive halving and doubling (Rabenseifner; Thakur, Rabenseifner, Gropp 2005) for any number of ranks.

p ranks take part, a power of two.  In round k a rank and its partner, p/2, p/4, .. 1 ranks away, each keep the half
that it is in and send the other to be reduced; after log2 p rounds each holds one reduced block.  Doubling is the same
backwards.  Each of the other ranks sends its vector to a participant before, and gets the result after.  A participant
that waits for such a vector is late.  A partner that is not would send at once and take half of its cable while it
still receives; so it waits for an empty message first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import NamedTuple

from workloads.collectives.schedule import Lane, Program, Recv, Send, Shape, Span, Step, pieces, spans


class Folded:
    """A group of n = p + extra ranks: of the first 2 x extra, each even one stands for itself and the one behind it.

    So the ranks that one participant stands for lie side by side, and so do their chunks.
    """

    def __init__(self, ranks: int) -> None:
        self.ranks = ranks
        self.participants = 1 << (ranks.bit_length() - 1)
        self.extra = ranks - self.participants

    def participant(self, index: int) -> int | None:
        """The participant that rank `index` is; None: another stands for it."""
        if index >= 2 * self.extra:
            return index - self.extra
        return None if index % 2 else index // 2

    def rank(self, participant: int) -> int:
        return 2 * participant if participant < self.extra else participant + self.extra

    def stands_for(self, index: int) -> int | None:
        """The rank that rank `index` stands for besides itself."""
        return index + 1 if index < 2 * self.extra and index % 2 == 0 else None

    def blocks(self, count: int) -> list[Span]:
        """The chunks of all ranks, those of a participant and of whom it stands for in one."""
        chunks = spans(count, self.ranks)
        ends = [self.rank(p) for p in range(self.participants)] + [self.ranks]
        return [Span(chunks[a].start, chunks[b - 1].stop) for a, b in zip(ends, ends[1:], strict=False)]


class _Round(NamedTuple):
    """The span before this round: the half that goes to the partner, and the half that stays."""

    partner: int
    send: Span
    keep: Span


def late(folded: Folded, distances: Sequence[int]) -> list[set[int]]:
    """The participants that are late before each of these rounds: those that stand for another, and whom they met."""
    rounds = [set(range(folded.extra))]
    for distance in distances:
        rounds.append(rounds[-1] | {p ^ distance for p in rounds[-1]})
    return rounds


def distances(folded: Folded) -> list[int]:
    """How far the partners of the halving rounds are from each other."""
    return [folded.participants >> k for k in range(1, folded.participants.bit_length())]


def _ready(folded: Folded, place: int, rounds: Sequence[int]) -> list[list[Step]]:
    """The empty messages with which the rounds of participant `place` begin."""
    steps: list[list[Step]] = []
    for distance, waiting in zip(rounds, late(folded, rounds), strict=False):
        partner = folded.rank(place ^ distance)
        step = Send(partner, 0, 0) if place in waiting else Recv(partner, 0, 0)
        steps.append([step] if (place in waiting) != (place ^ distance in waiting) else [])
    return steps


def rounds_of(place: int, blocks: Sequence[Span]) -> list[_Round]:
    """The halving rounds of participant `place`.  Doubling takes them backwards."""
    low, high = 0, len(blocks)
    rounds = []
    while high - low > 1:
        middle = (low + high) // 2
        lower = Span(blocks[low].start, blocks[middle - 1].stop)
        upper = Span(blocks[middle].start, blocks[high - 1].stop)
        if place < middle:
            rounds.append(_Round(place + middle - low, upper, lower))
            high = middle
        else:
            rounds.append(_Round(place - (middle - low), lower, upper))
            low = middle
    return rounds


def _received(place: int, k: int, rounds: Callable[[int], list[_Round]], chunk: int | None) -> list[Span]:
    """The pieces that participant `place` receives in round k: first those that it sends reduced in the next."""
    its = rounds(place)
    keep = its[k].keep
    if chunk is None or keep.stop - keep.start <= chunk:
        return [keep]
    if k + 1 == len(its):
        return pieces(*keep, chunk)
    return _received(its[k + 1].partner, k + 1, rounds, chunk) + _received(place, k + 1, rounds, chunk)


def _halve(folded: Folded, place: int, blocks: Sequence[Span], chunk: int | None) -> list[Step]:
    """What the next round sends goes out as soon as it is reduced, while the rest comes in."""
    of = cache(lambda place: rounds_of(place, blocks))
    rounds = of(place)
    to_send = [
        [Send(folded.rank(r.partner), *piece) for piece in _received(r.partner, k, of, chunk)]
        for k, r in enumerate(rounds)
    ]
    ready = _ready(folded, place, distances(folded))
    steps: list[Step] = [*ready[0], *to_send[0]] if rounds else []
    for k, r in enumerate(rounds):
        following = to_send[k + 1] if k + 1 < len(rounds) else []
        for start, stop in _received(place, k, of, chunk):
            steps.append(Recv(folded.rank(r.partner), start, stop, reduce=True))
            while following and not ready[k + 1] and start <= following[0].start and following[0].stop <= stop:
                steps.append(following.pop(0))
        if following:
            steps += [*ready[k + 1], *following]
    return steps


def _double(folded: Folded, place: int, blocks: Sequence[Span], ready: Sequence[Sequence[Step]] = ()) -> list[Step]:
    """Whole messages: nothing is reduced, so that nothing is gained by cutting them."""
    steps: list[Step] = []
    for k, r in enumerate(reversed(rounds_of(place, blocks))):
        peer = folded.rank(r.partner)
        steps += [*(ready[k] if ready else ()), Send(peer, *r.keep), Recv(peer, *r.send)]
    return steps


def _program(shape: Shape, *steps: Step, unequal: bool = False) -> Program:
    """`unequal`: one has more to send than another, so that a message could still be in the way of the next round's."""
    return [Lane(steps, 1 if unequal and shape.chunk is None else shape.window)]


def _fold_in(shape: Shape, kind: type[Send] | type[Recv], peer: int) -> list[Step]:
    """The vector of the rank that takes no part goes to the one that stands for it."""
    cut = pieces(0, shape.count, shape.chunk)
    return [Send(peer, *piece) if kind is Send else Recv(peer, *piece, reduce=True) for piece in cut]


def all_reduce(shape: Shape, index: int) -> Program:
    folded = Folded(shape.ranks)
    place = folded.participant(index)
    if place is None:
        return _program(shape, *_fold_in(shape, Send, index - 1), Recv(index - 1, 0, shape.count))
    blocks = spans(shape.count, folded.participants)
    steps = _halve(folded, place, blocks, shape.chunk) + _double(folded, place, blocks)
    other = folded.stands_for(index)
    if other is None:
        return _program(shape, *steps)
    return _program(shape, *_fold_in(shape, Recv, other), *steps, Send(other, 0, shape.count))


def reduce_scatter(shape: Shape, index: int) -> Program:
    folded = Folded(shape.ranks)
    place = folded.participant(index)
    chunks = spans(shape.count, shape.ranks)
    if place is None:
        return _program(shape, *_fold_in(shape, Send, index - 1), Recv(index - 1, *chunks[index]))
    steps = _halve(folded, place, folded.blocks(shape.count), shape.chunk)
    other = folded.stands_for(index)
    if other is None:
        return _program(shape, *steps, unequal=folded.extra > 0)
    return _program(shape, *_fold_in(shape, Recv, other), *steps, Send(other, *chunks[other]), unequal=True)


def all_gather(shape: Shape, index: int) -> Program:
    folded = Folded(shape.ranks)
    place = folded.participant(index)
    chunks = spans(shape.count, shape.ranks)
    if place is None:
        before, after = Span(0, chunks[index].start), Span(chunks[index].stop, shape.count)
        return _program(shape, Send(index - 1, *chunks[index]), Recv(index - 1, *before), Recv(index - 1, *after))
    ready = _ready(folded, place, distances(folded)[::-1])
    steps = _double(folded, place, folded.blocks(shape.count), ready)
    other = folded.stands_for(index)
    if other is None:
        return _program(shape, *steps, unequal=folded.extra > 0)
    before, after = Span(0, chunks[other].start), Span(chunks[other].stop, shape.count)
    return _program(shape, Recv(other, *chunks[other]), *steps, Send(other, *before), Send(other, *after), unequal=True)
