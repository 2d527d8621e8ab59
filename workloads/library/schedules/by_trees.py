"""All-reduce by double trees among servers: below each server's rank in it a chain of its GPUs, or NVLS.

With NVLS every GPU is the head of a part of the vector: it gets the others' parts from the switch, added up, and the
switch copies what it has.  Here these are messages to it and from it, which keep the GPUs' links busy for as long (2 S
(G-1)/G of an S that a switch makes S of), and what the switch takes is in the head's clock.
"""

from __future__ import annotations

from workloads.collectives.schedule import Program, Recv, Send, Shape, Span, Step, spans
from workloads.collectives.trees import binary
from workloads.library.schedules.lanes import lane, manner_of, pieces_of, taken
from workloads.library.schedules.orders import inside


def all_reduce_tree(shape: Shape, index: int) -> Program:
    """Half of the channels by each tree; a channel's two directions have half of the thread block each."""
    its = manner_of(shape)
    lanes = []
    for channel, share in enumerate(spans(shape.count, its.channels)):
        both = _in_tree(shape, index, channel, share)
        lanes += [lane(shape, index, steps, byte=2.0) for steps in both if steps]
    return lanes


def _in_tree(shape: Shape, index: int, channel: int, share: Span) -> tuple[list[Step], list[Step]]:
    """A rank's steps up and down."""
    its = manner_of(shape)
    servers, server = shape.ranks // its.gpus, index // its.gpus
    gpus = inside(channel, its.gpus, its.nics)
    order = [server * its.gpus + gpu for gpu in gpus]
    at, node = order.index(index), binary(server, servers, second=channel >= its.channels // 2)
    below = order[at + 1 : at + 2] + [child * its.gpus + gpus[0] for child in node.children if at == 0]
    above = order[at - 1] if at else None if node.parent is None else node.parent * its.gpus + gpus[0]
    return _up_and_down(shape, share, below, above, 2 * channel)


def _up_and_down(
    shape: Shape, share: Span, below: list[int], above: int | None, channel: int
) -> tuple[list[Step], list[Step]]:
    """Each piece passes the clock once in each direction; at the top it turns round."""
    up, down = channel, channel + 1
    rising: list[Step] = []
    falling: list[Step] = []
    for piece in pieces_of(shape, share):
        turned: list[Step] = [Send(peer, *piece, down) for peer in below]
        rising += taken(shape, piece, *(Recv(peer, *piece, True, up) for peer in below))
        if above is None:
            rising += turned
        else:
            receive = Recv(above, *piece, False, down)
            rising.append(Send(above, *piece, up))
            falling += [*(taken(shape, piece, receive) if below else [receive]), *turned]
    return rising, falling


def all_reduce_nvls_tree(shape: Shape, index: int) -> Program:
    """Every other channel by each tree; each head's part on every channel."""
    its = manner_of(shape)
    servers, server, gpu = shape.ranks // its.gpus, index // its.gpus, index % its.gpus
    heads = [head * its.gpus // its.nics for head in range(its.nics)]
    lanes = []
    for channel, share in enumerate(spans(shape.count, its.channels)):
        parts = dict(zip(heads, spans(share.stop - share.start, its.nics, share.start), strict=True))
        node, up = binary(server, servers, second=channel % 2 == 1), 2 * channel
        given: list[Step] = []
        gotten: list[Step] = []
        for head in heads:
            if head != gpu:
                given += [Send(server * its.gpus + head, *piece, up) for piece in pieces_of(shape, parts[head])]
                gotten += [Recv(server * its.gpus + head, *p, channel=up + 1) for p in pieces_of(shape, parts[head])]
        if gpu in parts:
            others = [rank for rank in range(server * its.gpus, (server + 1) * its.gpus) if rank != index]
            below = others + [child * its.gpus + gpu for child in node.children]
            above = None if node.parent is None else node.parent * its.gpus + gpu
            both = _up_and_down(shape, parts[gpu], below, above, up)
            lanes += [lane(shape, index, steps) for steps in both if steps]
        lanes += [lane(shape, index, steps) for steps in (given, gotten) if steps]
    return lanes
