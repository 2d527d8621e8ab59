"""What each rank does when a library carries a collective out by rings, one on each channel.

A channel is a lane with a clock of its own (a thread block): a slice that has come, and what is ours of it, pass the
clock once and go on.  What leaves a server by another GPU's NIC is handed on by a lane there that takes no time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from workloads.collectives.ring import Hop, both, gathering, reducing
from workloads.collectives.schedule import OUTPUT, Program, Recv, Send, Shape, Span, Step, Work, spans
from workloads.library.schedules.lanes import lane, manner_of, slices, taken
from workloads.library.schedules.orders import ring

_Hops = Callable[[int, int], list[Hop]]


def all_reduce_ring(shape: Shape, index: int) -> Program:
    return _rings(shape, index, both)


def reduce_scatter_ring(shape: Shape, index: int) -> Program:
    return _rings(shape, index, reducing)


def all_gather_ring(shape: Shape, index: int) -> Program:
    return _rings(shape, index, gathering)


def _rings(shape: Shape, index: int, hops: _Hops) -> Program:
    its, n = manner_of(shape), shape.ranks
    lanes, room = [], 0
    for channel in range(its.channels):
        order = ring(channel, n, its.gpus, its.nics, crossing=its.crossing)
        at = order.index(index)
        steps: list[Step] = []
        for chunks in _loops(shape, channel, order, whole=hops is both):
            steps += _around(shape, hops(n, at), chunks, order, at, channel)
        lanes.append(lane(shape, index, steps))
        handed, room = _handed_on(shape, index, hops, channel, order, room)
        if handed:
            lanes.append(lane(shape, index, handed))
    return lanes


def _loops(shape: Shape, channel: int, order: Sequence[int], *, whole: bool) -> Iterator[list[Span]]:
    """The chunks of each loop of a channel, by place in the ring: of the channel's share of the vector (`whole`), or of
    each rank's part."""
    its, n = manner_of(shape), shape.ranks
    most = max(1, its.chunk // its.width)
    if whole:
        share = spans(shape.count, its.channels)[channel]
        for start in range(share.start, share.stop, n * most):
            yield list(spans(min(n * most, share.stop - start), n, start))
        return
    shares = [spans(part.stop - part.start, its.channels, part.start)[channel] for part in shape.chunks]
    longest = max(share.stop - share.start for share in shares)
    for start in range(0, longest, most):
        loop = [Span(min(s.start + start, s.stop), min(s.start + start + most, s.stop)) for s in shares]
        yield [loop[rank] for rank in order]


def _around(
    shape: Shape, hops: Sequence[Hop], chunks: Sequence[Span], order: Sequence[int], at: int, channel: int
) -> list[Step]:
    """One loop: each hop's slices go on as soon as they have come."""
    left, right = preceding(shape, order, at), following(shape, order, at)
    steps: list[Step] = []
    for piece in slices(shape, chunks[hops[0].send]):
        steps += [Work(piece.stop - piece.start), Send(right, *piece, channel)]
    for k, hop in enumerate(hops):
        onward = k + 1 < len(hops)
        for piece in slices(shape, chunks[hop.receive]):
            receive = Recv(left, *piece, hop.reduce, channel)
            steps += taken(shape, piece, receive) if onward or hop.reduce else [receive]
            steps += [Send(right, *piece, channel)] * onward
    return steps


def through(shape: Shape, order: Sequence[int], at: int) -> int | None:
    """The GPU that hands on what the rank at this place sends, if its ring leaves the server by another's NIC."""
    its, n = manner_of(shape), shape.ranks
    if its.crossing or not its.pxn or its.gpus == 1 or n == its.gpus or at % its.gpus != its.gpus - 1:
        return None
    return order[at - its.gpus + 1]


def following(shape: Shape, order: Sequence[int], at: int) -> int:
    """To whom the rank at this place sends."""
    other = through(shape, order, at)
    return order[(at + 1) % shape.ranks] if other is None else other


def preceding(shape: Shape, order: Sequence[int], at: int) -> int:
    """Whom it receives from."""
    other = through(shape, order, at - 1 if at else shape.ranks - 1)
    return order[at - 1] if other is None else other


def _handed_on(
    shape: Shape, index: int, hops: _Hops, channel: int, order: Sequence[int], room: int
) -> tuple[list[Step], int]:
    """What a rank hands on for the last GPU of its server, each slice in a place of its own behind `room`."""
    its, n = manner_of(shape), shape.ranks
    at = order.index(index) + its.gpus - 1
    if order.index(index) % its.gpus or at >= n or through(shape, order, at) != index:
        return [], room
    source, target, steps = order[at], order[(at + 1) % n], list[Step]()
    for chunks in _loops(shape, channel, order, whole=hops is both):
        for hop in hops(n, at):
            for piece in slices(shape, chunks[hop.send]):
                place = Span(room, room + piece.stop - piece.start)
                steps += [Recv(source, *place, channel=channel, into=OUTPUT), Send(target, *place, channel, OUTPUT)]
                room = place.stop
    return steps, room
