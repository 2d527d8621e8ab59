"""Sums in the server first, then in the switches: the schedule of NCCL's CollnetDirect.

Each GPU of a server owns a share of the vector: of a reduce-scatter the parts of all ranks on its rail.  The others
send it theirs over the scale-up domain, piece by piece; it adds them up, has the switches add up the servers' sums
along its rail, and of an all-reduce gives the result to the others.  So a NIC carries its share once each way, and the
domain works while the rails do.  To a schedule the switches are one more peer, behind the last rank: what is sent to
them comes back as a sum, in order, or at the rank whose part it is.
"""

from __future__ import annotations

from typing import NamedTuple

from workloads.collectives.rails import AHEAD, Place, channels_of, in_turn
from workloads.collectives.schedule import OUTPUT, WINDOW, Lane, Program, Recv, Send, Shape, Span, Step, pieces, spans

POSTED = 32
"""Pieces that a NIC has of its rank's at a time: more than cover the way of one, and fewer than it takes."""


class Piece(NamedTuple):
    """Of a share, and which server's GPU alone wants the sums (None: all do)."""

    span: Span
    server: int | None


def switches(shape: Shape) -> int:
    """Index of the peer that adds up."""
    return shape.ranks


def shares(shape: Shape, *, in_parts: bool = False) -> list[list[Piece]]:
    """Of each GPU of a server, its pieces in the order in which they are posted; none where there is nothing."""
    servers, gpus = shape.dims
    if not in_parts:
        return [_whole([Piece(piece, None) for piece in pieces(*s, shape.chunk)]) for s in spans(shape.count, gpus)]
    parts = spans(shape.count, shape.ranks)
    cut = [[pieces(*parts[s * gpus + gpu], shape.chunk) for s in range(servers)] for gpu in range(gpus)]
    return [_whole([Piece(piece, s) for _, s, piece in in_turn(range(servers), its)]) for its in cut]


def _whole(its: list[Piece]) -> list[Piece]:
    return [piece for piece in its if piece.span.stop > piece.span.start]


def gets(piece: Piece, here: Place) -> bool:
    """Whether a GPU gets a piece's sums."""
    return piece.server in (None, here.server)


def all_reduce(shape: Shape, index: int) -> Program:
    """The result is in the output: what the switches are to add up stays where it is."""
    return _program(shape, index, in_parts=False)


def reduce_scatter(shape: Shape, index: int) -> Program:
    """Likewise."""
    return _program(shape, index, in_parts=True)


def _program(shape: Shape, index: int, *, in_parts: bool) -> Program:
    cut, channels = shares(shape, in_parts=in_parts), channels_of(shape.dims[1])
    if index == switches(shape):  # what it is sent lands nowhere
        every = ((rank, k, its) for rank in range(shape.ranks) for k, its in enumerate(cut[rank % shape.dims[1]]))
        return [Lane([Recv(rank, *its.span, channel=k % channels) for rank, k, its in every])]
    here, up = Place(shape, index), switches(shape)
    added: list[list[Step]] = [[] for _ in range(channels)]
    sums: list[Step] = []
    for k, piece in enumerate(cut[here.gpu]):
        steps = added[k % channels]
        steps += [Recv(peer, *piece.span, True, k % channels) for peer in here.others]
        steps.append(Send(up, *piece.span, k % channels))
        if gets(piece, here):
            sums += [Recv(up, *piece.span, False, k % channels, OUTPUT)]
        if not in_parts:
            sums += [Send(peer, *piece.span, channels, OUTPUT) for peer in here.others]
    others = [[its.span for its in cut[peer % here.gpus]] for peer in here.others]
    turns = list(in_turn(here.others, others))
    given: list[Step] = [Send(peer, *piece, k % channels) for k, peer, piece in turns]
    gotten: list[Step] = [Recv(peer, *piece, False, channels, OUTPUT) for _, peer, piece in turns if not in_parts]
    lanes = [Lane(steps, POSTED // channels or 1) for steps in added if steps]
    if sums:
        lanes.append(Lane(sums, shape.window, per_peer=True))
    if gotten:
        lanes.append(Lane(gotten, None))
    return [*lanes, Lane(given, max(WINDOW, AHEAD * len(here.others)))] if given else lanes
