"""Broadcast and reduce along a library's rings, piece by piece: from the root to the last rank, or to the root."""

from __future__ import annotations

from workloads.collectives.schedule import OUTPUT, Program, Recv, Send, Shape, Span, Step, Work, spans
from workloads.library.schedules.by_rings import following, preceding, through
from workloads.library.schedules.lanes import lane, manner_of, pieces_of, taken
from workloads.library.schedules.orders import ring

ROOT = 0


def broadcast(shape: Shape, index: int) -> Program:
    return _chains(shape, index, reduce=False)


def reduce(shape: Shape, index: int) -> Program:
    return _chains(shape, index, reduce=True)


def _chains(shape: Shape, index: int, *, reduce: bool) -> Program:
    its, n = manner_of(shape), shape.ranks
    lanes, room = [], 0
    for channel, share in enumerate(spans(shape.count, its.channels)):
        order = ring(channel, n, its.gpus, its.nics, crossing=its.crossing)
        first = order.index(ROOT) + reduce  # the root's next begins, and the root is last
        at, pieces = order.index(index), pieces_of(shape, share)
        place = (at - first) % n
        steps: list[Step] = []
        for piece in pieces:
            receive = Recv(preceding(shape, order, at), *piece, reduce, channel)
            works = reduce or place + 1 < n
            if place == 0:
                steps += [Work(piece.stop - piece.start)] * works
            else:
                steps += taken(shape, piece, receive) if works else [receive]
            steps += [Send(following(shape, order, at), *piece, channel)] * (place + 1 < n)
        lanes.append(lane(shape, index, steps))
        last = at + its.gpus - 1  # of the server, if the ring comes in here
        if at % its.gpus == 0 and last < n and (last - first) % n + 1 < n and through(shape, order, last) == index:
            handed: list[Step] = []
            for piece in pieces:
                span = Span(room, room + piece.stop - piece.start)
                handed += [Recv(order[last], *span, channel=channel, into=OUTPUT)]
                handed += [Send(order[(last + 1) % n], *span, channel, OUTPUT)]
                room = span.stop
            lanes.append(lane(shape, index, handed))
    return lanes
