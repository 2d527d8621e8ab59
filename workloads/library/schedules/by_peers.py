"""Messages from rank to rank as a library carries them out: on a few channels to each peer, in chunks, with PXN.

A message to a GPU on another rail of another server goes first to the GPU here that is on that rail, which hands it on
(PXN), so that no message leaves its rail.  Channels are shared by peers: the next peer begins on the next channel.
"""

from __future__ import annotations

from collections.abc import Iterator

from workloads.collectives.exchange import landings, parts
from workloads.collectives.schedule import OUTPUT, Copy, Program, Recv, Send, Shape, Span, Step, Work, spans
from workloads.library.schedules.lanes import lane, manner_of, pieces_of


def _through(shape: Shape, source: int, target: int) -> int | None:
    """Who hands on what goes from one rank to the other."""
    its = manner_of(shape)
    server, gpu = source // its.gpus, target % its.gpus
    if not its.pxn or target // its.gpus == server or source % its.gpus == gpu:
        return None
    return server * its.gpus + gpu


class _Flow:
    """What goes from one rank to another on one of the channels between them, and by whom it comes and goes on which.

    Channels of connections are told apart by where a flow ends, or on its second way by whose it is.
    """

    def __init__(self, shape: Shape, source: int, target: int, number: int) -> None:
        its = manner_of(shape)
        self.source, self.target = source, target
        self.through = _through(shape, source, target)
        of_peer, servers = its.of_peer, shape.ranks // its.gpus
        self.first = number if self.through is None else of_peer * (1 + target // its.gpus) + number
        self.second = of_peer * (1 + servers + source % its.gpus) + number

    def sent(self, piece: Span) -> Send:
        return Send(self.target if self.through is None else self.through, *piece, self.first)

    def received(self, piece: Span) -> Recv:
        if self.through is None:
            return Recv(self.source, *piece, channel=self.first, into=OUTPUT)
        return Recv(self.through, *piece, channel=self.second, into=OUTPUT)

    def handed_on(self, pieces: list[Span], room: int) -> Iterator[Step]:
        """Each in a place of its own behind `room`."""
        for piece in pieces:
            place = Span(room, room + piece.stop - piece.start)
            yield Recv(self.source, *place, channel=self.first, into=OUTPUT)
            yield Send(self.target, *place, self.second, OUTPUT)
            room = place.stop


def _shares(shape: Shape, span: Span) -> list[list[Span]]:
    """Of a message, by channel between the two, in chunks."""
    shares = spans(span.stop - span.start, manner_of(shape).of_peer, span.start)
    return [pieces_of(shape, share) or [share] for share in shares]


def send_recv(shape: Shape, index: int) -> Program:
    """Every rank its vector to the next."""
    n = shape.ranks
    lanes, room = [], shape.count
    for number, pieces in enumerate(_shares(shape, Span(0, shape.count))):
        ours = _Flow(shape, index, (index + 1) % n, number)
        given: list[Step] = []
        for piece in pieces:
            given += [Work(piece.stop - piece.start), ours.sent(piece)]
        theirs = _Flow(shape, (index - 1) % n, index, number)
        lanes += [lane(shape, index, given), lane(shape, index, [theirs.received(piece) for piece in pieces])]
        for source in _beside(shape, index):
            flow = _Flow(shape, source, (source + 1) % n, number)
            if flow.through == index:
                lanes.append(lane(shape, index, list(flow.handed_on(pieces, room))))
                room += pieces[-1].stop - pieces[0].start
    return lanes


def all_to_all(shape: Shape, index: int) -> Program:
    """To the rank one on, two on, .. and from as far back, as channels become free."""
    its, n = manner_of(shape), shape.ranks
    inputs, outputs = parts(shape, index), landings(shape, index)
    given: list[list[Step]] = [[] for _ in range(its.channels)]
    gotten: list[list[Step]] = [[] for _ in range(its.channels)]
    handed: list[list[Step]] = [[Copy(*inputs[index], outputs[index].start)]]
    room = outputs[-1].stop
    for far in range(1, n):
        to, back = (index + far) % n, (index - far) % n
        for number, pieces in enumerate(_shares(shape, inputs[to])):
            flow, channel = _Flow(shape, index, to, number), (far * its.of_peer + number) % its.channels
            for piece in pieces:
                given[channel] += [Work(piece.stop - piece.start), flow.sent(piece)]
        for number, pieces in enumerate(_shares(shape, outputs[back])):
            flow, channel = _Flow(shape, back, index, number), (far * its.of_peer + number) % its.channels
            gotten[channel] += [flow.received(piece) for piece in pieces]
        for source in _beside(shape, index):
            target = (source + far) % n
            if _through(shape, source, target) != index:
                continue
            for number, pieces in enumerate(_shares(shape, parts(shape, source)[target])):
                flow = _Flow(shape, source, target, number)
                handed.append(list(flow.handed_on(pieces, room)))
                room += pieces[-1].stop - pieces[0].start
    return [lane(shape, index, steps) for steps in (*handed, *given, *gotten) if steps]


def _beside(shape: Shape, index: int) -> Iterator[int]:
    """The other GPUs of its server."""
    its = manner_of(shape)
    first = index - index % its.gpus
    yield from (rank for rank in range(first, first + its.gpus) if rank != index)
