"""What each rank does when a library carries a collective out: rings on all channels, double trees with chains.

A channel is a lane with a clock of its own (a thread block): a slice that has come, and what is ours of it, pass the
clock once and go on.  What leaves a server by another GPU's NIC is handed on by a lane there that takes no time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from workloads.collectives.manner import Manner
from workloads.collectives.ring import Hop, both, gathering, reducing
from workloads.collectives.schedule import (
    OUTPUT,
    Clock,
    Lane,
    Program,
    Recv,
    Send,
    Shape,
    Span,
    Step,
    Work,
    lying,
    spans,
)
from workloads.collectives.trees import binary
from workloads.library.orders import inside, ring
from workloads.library.pieces import Cut


def _manner(shape: Shape) -> Manner:
    assert shape.library is not None
    return shape.library


def _clock(shape: Shape, index: int, *, byte: float = 1.0) -> Clock:
    its = _manner(shape)
    later = its.peers(index, shape.ranks)
    return Clock(its.launch, its.slice, byte * its.byte * its.width, later)


def _lane(shape: Shape, index: int, steps: Sequence[Step], window: int, *, byte: float = 1.0) -> Lane:
    its = _manner(shape)
    clock, padded = _clock(shape, index, byte=byte), its.padded
    return Lane(steps, window, per_peer=True, buffered=padded > 1, clock=clock, padded=padded)


def _slices(shape: Shape, span: Span) -> list[Span]:
    """A chunk's."""
    its = _manner(shape)
    cut = Cut(its.chunk, its.slices, its.least, its.slots)
    lengths = [nbytes // its.width for nbytes in cut.slices_of((span.stop - span.start) * its.width)]
    return [*map(Span._make, lying(lengths, span.start))]


# Rings


def all_reduce_ring(shape: Shape, index: int) -> Program:
    return _rings(shape, index, both)


def reduce_scatter_ring(shape: Shape, index: int) -> Program:
    return _rings(shape, index, reducing)


def all_gather_ring(shape: Shape, index: int) -> Program:
    return _rings(shape, index, gathering)


def _rings(shape: Shape, index: int, hops: object) -> Program:
    its, n = _manner(shape), shape.ranks
    lanes, room = [], 0
    for channel in range(its.channels):
        order = ring(channel, n, its.gpus, its.nics, crossing=its.crossing)
        at = order.index(index)
        steps: list[Step] = []
        for chunks in _loops(shape, channel, order, whole=hops is both):
            steps += _around(shape, hops(n, at), chunks, order, at, channel)  # type: ignore[operator]
        lanes.append(_lane(shape, index, steps, its.slots))
        handed, room = _handed_on(shape, index, hops, channel, order, room)
        if handed:
            lanes.append(_lane(shape, index, handed, its.slots))
    return lanes


def _loops(shape: Shape, channel: int, order: Sequence[int], *, whole: bool) -> Iterator[list[Span]]:
    """The chunks of each loop of a channel, by place in the ring: of the channel's share of the vector (`whole`), or of
    each rank's part."""
    its, n = _manner(shape), shape.ranks
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
    left, right = _from(shape, order, at), _next(shape, order, at)
    steps: list[Step] = []
    for piece in _slices(shape, chunks[hops[0].send]):
        steps += [Work(piece.stop - piece.start), Send(right, *piece, channel)]
    for k, hop in enumerate(hops):
        onward = k + 1 < len(hops)
        for piece in _slices(shape, chunks[hop.receive]):
            steps.append(Recv(left, *piece, hop.reduce, channel))
            steps += [Work(piece.stop - piece.start)] * (onward or hop.reduce)
            steps += [Send(right, *piece, channel)] * onward
    return steps


def _through(shape: Shape, order: Sequence[int], at: int) -> int | None:
    """The GPU that hands on what the rank at this place sends, if its ring leaves the server by another's NIC."""
    its, n = _manner(shape), shape.ranks
    if its.crossing or not its.pxn or its.gpus == 1 or n == its.gpus or at % its.gpus != its.gpus - 1:
        return None
    return order[at - its.gpus + 1]


def _next(shape: Shape, order: Sequence[int], at: int) -> int:
    """To whom the rank at this place sends."""
    through = _through(shape, order, at)
    return order[(at + 1) % shape.ranks] if through is None else through


def _from(shape: Shape, order: Sequence[int], at: int) -> int:
    """Whom it receives from."""
    through = _through(shape, order, at - 1 if at else shape.ranks - 1)
    return order[at - 1] if through is None else through


def _handed_on(
    shape: Shape, index: int, hops: object, channel: int, order: Sequence[int], room: int
) -> tuple[list[Step], int]:
    """What a rank hands on for the last GPU of its server, each slice in a place of its own behind `room`."""
    its, n = _manner(shape), shape.ranks
    at = order.index(index) + its.gpus - 1
    if order.index(index) % its.gpus or at >= n or _through(shape, order, at) != index:
        return [], room
    source, target, steps = order[at], order[(at + 1) % n], list[Step]()
    for chunks in _loops(shape, channel, order, whole=hops is both):
        for hop in hops(n, at):  # type: ignore[operator]
            for piece in _slices(shape, chunks[hop.send]):
                place = Span(room, room + piece.stop - piece.start)
                steps += [Recv(source, *place, channel=channel, into=OUTPUT), Send(target, *place, channel, OUTPUT)]
                room = place.stop
    return steps, room


# Trees


def all_reduce_tree(shape: Shape, index: int) -> Program:
    """Half of the channels by each tree; a channel's two directions have half of the thread block each."""
    its = _manner(shape)
    lanes = []
    for channel, share in enumerate(spans(shape.count, its.channels)):
        rising, falling = _in_tree(shape, index, channel, share)
        lanes += [_lane(shape, index, steps, its.slots, byte=2.0) for steps in (rising, falling) if steps]
    return lanes


def _in_tree(shape: Shape, index: int, channel: int, share: Span) -> tuple[list[Step], list[Step]]:
    """A rank's steps up and down."""
    its, servers = _manner(shape), shape.ranks // _manner(shape).gpus
    server = index // its.gpus
    order = [server * its.gpus + gpu for gpu in inside(channel, its.gpus, its.nics)]
    at, node = order.index(index), binary(server, servers, second=channel >= its.channels // 2)
    head = inside(channel, its.gpus, its.nics)[0]
    below = order[at + 1 : at + 2] + [child * its.gpus + head for child in node.children if at == 0]
    above = order[at - 1] if at else None if node.parent is None else node.parent * its.gpus + head
    up, down = 2 * channel, 2 * channel + 1
    rising: list[Step] = []
    falling: list[Step] = []
    most = max(1, its.chunk // its.width)
    for start in range(share.start, share.stop, most):
        piece = Span(start, min(start + most, share.stop))
        work, rising_to = Work(piece.stop - piece.start), [Recv(peer, *piece, True, up) for peer in below]
        rising += rising_to
        turned: list[Step] = [Send(peer, *piece, down) for peer in below]
        if above is None:
            rising += [work, *turned]
        else:
            rising += [work, Send(above, *piece, up)]
            falling += [Recv(above, *piece, False, down), *([work] if below else []), *turned]
    return rising, falling
