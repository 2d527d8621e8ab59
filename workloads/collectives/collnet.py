"""Sums in the server first, then in the switches: the schedule of NCCL's CollnetDirect.

Each GPU of a server owns a share of the vector.  The others send it theirs over the scale-up domain, piece by piece; it
adds them up, has the switches add up the servers' sums along its rail, and gives the result to the others.  So a NIC
carries its share once each way, and the domain works while the rails do.  To a schedule the switches are one more
peer, behind the last rank: what is sent to them comes back as a sum, in order.
"""

from __future__ import annotations

from workloads.collectives.rails import AHEAD, Place, channels_of, in_turn
from workloads.collectives.schedule import OUTPUT, WINDOW, Lane, Program, Recv, Send, Shape, Span, Step, pieces, spans

POSTED = 32
"""Pieces that a NIC has of its rank's at a time: more than cover the way of one, and fewer than it takes."""


def switches(shape: Shape) -> int:
    """Index of the peer that adds up."""
    return shape.ranks


def shares(shape: Shape) -> list[list[Span]]:
    """Of each GPU of a server, its pieces; none where there is nothing."""
    cut = [pieces(*share, shape.chunk) for share in spans(shape.count, shape.dims[1])]
    return [[piece for piece in its if piece.stop > piece.start] for its in cut]


def all_reduce(shape: Shape, index: int) -> Program:
    """The result is in the output: what the switches are to add up stays where it is."""
    cut, channels = shares(shape), channels_of(shape.dims[1])
    if index == switches(shape):  # what it is sent lands nowhere
        every = ((rank, k, piece) for rank in range(shape.ranks) for k, piece in enumerate(cut[rank % shape.dims[1]]))
        return [Lane([Recv(rank, *piece, channel=k % channels) for rank, k, piece in every])]
    here, up = Place(shape, index), switches(shape)
    added: list[list[Step]] = [[] for _ in range(channels)]
    sums: list[Step] = []
    for k, piece in enumerate(cut[here.gpu]):
        steps = added[k % channels]
        steps += [Recv(peer, *piece, True, k % channels) for peer in here.others]
        steps.append(Send(up, *piece, k % channels))
        sums += [Recv(up, *piece, False, k % channels, OUTPUT)]
        sums += [Send(peer, *piece, channels, OUTPUT) for peer in here.others]
    others = [cut[peer % here.gpus] for peer in here.others]
    turns = list(in_turn(here.others, others))
    given: list[Step] = [Send(peer, *piece, k % channels) for k, peer, piece in turns]
    gotten: list[Step] = [Recv(peer, *piece, False, channels, OUTPUT) for _, peer, piece in turns]
    lanes = [Lane(steps, POSTED // channels or 1) for steps in added if steps]
    if sums:
        lanes.append(Lane(sums, shape.window, per_peer=True))
    if gotten:
        lanes.append(Lane(gotten, None))
    return [*lanes, Lane(given, max(WINDOW, AHEAD * len(here.others)))] if given else lanes
