"""Trees: double binary tree all-reduce, binomial broadcast and reduce, pipelined chains.

The double binary tree is two trees over all ranks, each for half of the vector, such that a rank that has children in
one is a leaf in the other (Sanders, Speck, Traeff: Two-tree algorithms for full bandwidth broadcast, reduction and
scan, 2009; NCCL 2.4).  Every piece goes up to the root, reduced on its way, and down again, while others follow: each
rank sends and receives the vector twice at most, whatever the number of ranks, and the way is only 2 log2 n hops long.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from workloads.collectives.schedule import Lane, Program, Recv, Send, Shape, Span, Step, pieces, spans


@dataclass(frozen=True)
class Node:
    """A rank's place in a tree."""

    parent: int | None
    children: tuple[int, ...]


def _binary_parent(rank: int, ranks: int) -> int | None:
    """The tree in which every odd rank is a leaf: rank 0 on top, the others in order below the largest power of two."""
    if rank == 0:
        return None
    bit = rank & -rank
    above = (rank ^ bit) | (bit << 1)
    return above if above < ranks else rank ^ bit


def _binary_children(place: int, ranks: int) -> list[int]:
    """Whose parent it is, in order: half its lowest bit below it, or any smaller power of two above it."""
    lowest = place & -place or 1 << ranks.bit_length()
    may_be = [place - lowest // 2, *(place + (1 << k) for k in range(lowest.bit_length() - 1))]
    return [child for child in may_be if 0 < child < ranks and _binary_parent(child, ranks) == place]


def binary(index: int, ranks: int, *, second: bool) -> Node:
    """Rank `index` in the first or second tree: the second is the first mirrored, or shifted where n is odd."""

    def map_place(place: int, shift: int) -> int:  # between the trees
        if not second:
            return place
        return ranks - 1 - place if ranks % 2 == 0 else (place + shift) % ranks

    place = map_place(index, -1)
    parent = _binary_parent(place, ranks)
    children = tuple(map_place(child, 1) for child in _binary_children(place, ranks))
    return Node(None if parent is None else map_place(parent, 1), children)


def double_binary_all_reduce(shape: Shape, index: int) -> Program:
    """Channels 0 and 1 lead up and down the first tree, 2 and 3 the second; only at the top a piece turns round."""
    lanes = []
    for tree, half in enumerate(spans(shape.count, 2)):
        node = binary(index, shape.ranks, second=tree == 1)
        up, down = 2 * tree, 2 * tree + 1
        rising, falling = partial(_rising, node, up, down), partial(_falling, node, down)
        lanes += [_piped(shape, half, each, shape.window, per_peer=True) for each in (rising, falling)]
    return lanes


def _rising(node: Node, up: int, down: int, piece: Span) -> list[Step]:
    steps: list[Step] = [Recv(child, *piece, True, up) for child in node.children]
    if node.parent is None:
        return [*steps, *_turned(node, down, piece)]
    return [*steps, Send(node.parent, *piece, up)]


def _falling(node: Node, down: int, piece: Span) -> list[Step]:
    if node.parent is None:
        return []
    return [Recv(node.parent, *piece, False, down), *_turned(node, down, piece)]


def _turned(node: Node, down: int, piece: Span) -> list[Step]:
    return [Send(child, *piece, down) for child in node.children]


def _piped(
    shape: Shape, whole: Span, each: Callable[[Span], list[Step]], window: int | None, *, per_peer: bool = False
) -> Lane:
    """One piece after the other, each in the same steps."""

    def steps() -> list[Step]:
        return [step for piece in pieces(*whole, shape.chunk) for step in each(piece)]

    return Lane(steps, window, per_peer=per_peer, channels=Lane(each(whole)).channels)


def binomial(index: int, ranks: int) -> Node:
    """The tree below rank 0 in which a rank's children are 1, 2, 4, .. ranks on, the farthest (with the most) first."""
    lowest = index & -index if index else 1 << (ranks - 1).bit_length()
    children = [index + (1 << k) for k in reversed(range(lowest.bit_length() - 1))]
    return Node(index & (index - 1) if index else None, tuple(c for c in children if c < ranks))


def chain(index: int, ranks: int) -> Node:
    """Rank 0 first, each the parent of the next."""
    return Node(index - 1 if index else None, (index + 1,) if index + 1 < ranks else ())


def _down(node: Node, piece: Span) -> list[Step]:
    received: list[Step] = [] if node.parent is None else [Recv(node.parent, *piece)]
    return [*received, *(Send(child, *piece) for child in node.children)]


def early(index: int, ranks: int) -> bool:
    """Whether a rank of the binomial tree, for want of some that a full one has below it, is ready before its turn.

    Its message would meet that of its sibling before it at their parent's cable: an empty message asks for it.
    """
    return index > 0 and index + (index & -index) > ranks


def _up(node: Node, piece: Span) -> list[Step]:
    received: list[Step] = [Recv(child, *piece, reduce=True) for child in reversed(node.children)]
    return received if node.parent is None else [*received, Send(node.parent, *piece)]


def _whole(shape: Shape) -> Span:
    return Span(0, shape.count)


def binomial_broadcast(shape: Shape, index: int) -> Program:
    """One message after the other: a child that can pass it on must not wait for its siblings to have it, too."""
    window = shape.window or shape.in_turn(shape.count)
    return [_piped(shape, _whole(shape), partial(_down, binomial(index, shape.ranks)), window)]


def collecting(node: Node, index: int, ranks: int, spans_of: Callable[[int], Span], *, reduce: bool) -> list[Step]:
    """Whole messages up the binomial tree, of what `spans_of` a child says: one child after the other."""
    steps: list[Step] = []
    for child in reversed(node.children):
        if early(child, ranks):
            steps.append(Send(child, 0, 0))
        steps.append(Recv(child, *spans_of(child), reduce))
    if node.parent is not None:
        if early(index, ranks):
            steps.append(Recv(node.parent, 0, 0))
        steps.append(Send(node.parent, *spans_of(index)))
    return steps


def binomial_reduce(shape: Shape, index: int) -> Program:
    node = binomial(index, shape.ranks)
    if shape.chunk is not None:
        return [_piped(shape, _whole(shape), partial(_up, node), shape.window)]
    return [Lane(collecting(node, index, shape.ranks, lambda _: _whole(shape), reduce=True))]


def chain_broadcast(shape: Shape, index: int) -> Program:
    return [_piped(shape, _whole(shape), partial(_down, chain(index, shape.ranks)), shape.window)]


def chain_reduce(shape: Shape, index: int) -> Program:
    return [_piped(shape, _whole(shape), partial(_up, chain(index, shape.ranks)), shape.window)]
