"""All NICs of every server at once: inside scale-up domains and along rails, piece by piece.

Rank (s, r) is GPU r of server s, with a NIC on rail r.  Between servers a chunk goes along its owner's rail alone, once
round a ring of servers; inside a server every GPU sends straight to every other.  So each NIC carries no more than its
share of what must enter or leave the server, and the domain works while the rails do.  What is to be reduced is added
up by lanes of their own, as many as a server has NICs: a lane is a channel, and NCCL has one ring for each NIC, too.

Messages of an all-to-all leave by the NIC that is on their receiver's rail (NCCL's PXN): first to the GPU that has it,
and small ones for one receiver as one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from workloads.collectives.exchange import landings, parts
from workloads.collectives.schedule import (
    OUTPUT,
    WINDOW,
    Copy,
    Lane,
    Program,
    Recv,
    Send,
    Shape,
    Span,
    Step,
    lying,
    pieces,
    spans,
)

MOST_CHANNELS = 8
"""That add up side by side."""
AHEAD = 2
"""Pieces for each other GPU of a server that are under way at a time, before they are reduced: more would only keep the
host busy posting while the first ones come in."""
_AT_ONCE = 8
"""Messages of which NCCL makes one (NCCL_NET_IB_MAX_RECVS).  Of parts beyond 8 KiB the first would be kept too long."""


class Place:
    """A rank's among servers (first of the shape's `dims`) and their GPUs (second)."""

    def __init__(self, shape: Shape, index: int) -> None:
        self.servers, self.gpus = shape.dims
        self.index = index
        self.server, self.gpu = divmod(index, self.gpus)
        self.left, self.right = (self.rank(self.server + step, self.gpu) for step in (-1, 1))
        self.others = [self.rank(self.server, self.gpu + k) for k in range(1, self.gpus)]
        """Of its server, each rank beginning with another one."""

    def server_ranks(self) -> list[int]:
        """All of its server, in order."""
        return [self.rank(self.server, gpu) for gpu in range(self.gpus)]

    def rank(self, server: int, rail: int) -> int:
        """`rail`: its number, or any rank on it."""
        return server % self.servers * self.gpus + rail % self.gpus


def _around(shape: Shape, index: int, *, reduces: bool, gathers: bool) -> Program:
    """Hops of a ring of servers as in ring.py: m that reduce, m that gather, of which the last and first are one.

    Before a piece is reduced along the rail the server's other GPUs send theirs; once it is gathered they get it.
    """
    here, chunks = Place(shape, index), spans(shape.count, shape.ranks)
    m, channels = here.servers, channels_of(here.gpus) if reduces else 1
    first, last = 0 if reduces else m - 1, 2 * m - 1 if gathers else m
    lanes: list[list[Step]] = [[] for _ in range(channels)]
    given: list[Step] = []
    gotten: list[Step] = []
    for hop in range(first, last):
        server = (here.server - 1 - hop) % m
        for k, piece in enumerate(pieces(*chunks[here.rank(server, here.gpu)], shape.chunk)):
            channel = (server + k) % channels
            steps = lanes[channel]
            if reduces and hop < m:
                steps += [Recv(peer, *piece, True, channel) for peer in here.others]
            if hop > first:
                steps.append(Recv(here.left, *piece, hop < m, channel))
            if hop + 1 < last:
                steps.append(Send(here.right, *piece, channel))
            if gathers and hop >= m - 1:
                steps += [Send(peer, *piece, channels + channel) for peer in here.others]
        others = [pieces(*chunks[here.rank(server, peer)], shape.chunk) for peer in here.others]
        for k, peer, piece in in_turn(here.others, others):
            channel = (server + k) % channels
            if reduces and hop < m:
                given.append(Send(peer, *piece, channel))
            if gathers and hop >= m - 1:
                gotten.append(Recv(peer, *piece, False, channels + channel))
    program = [Lane(steps, shape.window, per_peer=True) for steps in (*lanes, gotten) if steps]
    return [*program, Lane(given, max(WINDOW, AHEAD * len(here.others)))] if given else program


def in_turn(peers: Sequence[int], cut: Sequence[Sequence[Span]]) -> Iterator[tuple[int, int, Span]]:
    """The pieces of each peer's, the first of all first: its number, whose it is, the piece."""
    for k in range(max(map(len, cut))):
        for peer, its in zip(peers, cut, strict=True):
            if k < len(its):
                yield k, peer, its[k]


def channels_of(gpus: int) -> int:
    """How many lanes reduce."""
    return min(gpus, MOST_CHANNELS)


def all_reduce(shape: Shape, index: int) -> Program:
    return _around(shape, index, reduces=True, gathers=True)


def reduce_scatter(shape: Shape, index: int) -> Program:
    return _around(shape, index, reduces=True, gathers=False)


def all_gather(shape: Shape, index: int) -> Program:
    return _around(shape, index, reduces=False, gathers=True)


def broadcast(shape: Shape, index: int) -> Program:
    """Of each server every GPU gets a share over its rail, from the server before, and gives it to the others.

    In the first server they get their shares from the root.  The root's own goes from each of them to the next, so that
    the root sends every byte into its domain once.
    """
    here, cut = Place(shape, index), [pieces(*share, shape.chunk) for share in spans(shape.count, shape.dims[1])]
    onward = [here.right] * (here.server + 1 < here.servers)
    others = [peer for peer in here.others if peer]  # the root has all
    if index == 0:
        root: list[Step] = []
        for _, peer, piece in in_turn(range(here.gpus), cut):
            root += _to([peer], piece) if peer else [*_to(onward, piece), *_to([1], piece, 1)]
        return [Lane(root, shape.window, per_peer=True)]
    before = here.left if here.server else 0
    own: list[Step] = []
    for piece in cut[here.gpu]:
        own += [Recv(before, *piece), *_to([*onward, *others], piece)]
    gotten: list[Step] = [Recv(peer, *piece) for peer in others for piece in cut[peer % here.gpus]]
    passed: list[Step] = []
    if here.server == 0:
        behind = [index + 1] * (here.gpu + 1 < here.gpus)
        for piece in cut[0]:
            passed += [Recv(index - 1, *piece, channel=1), *_to(behind, piece, 1)]
    return [Lane(steps, shape.window, per_peer=True) for steps in (own, gotten, passed) if steps]


def _to(peers: Sequence[int], piece: Span, channel: int = 0) -> list[Send]:
    return [Send(peer, *piece, channel) for peer in peers]


def together(shape: Shape, lengths: Sequence[int]) -> bool:
    """Whether what a server's GPUs have for one that is elsewhere, of such lengths, leaves as one message."""
    return _AT_ONCE * max(lengths) <= shape.eager


def all_to_all(shape: Shape, index: int) -> Program:
    """What is for another server goes first to the GPU on its rail, which has room for it behind its own result.

    Small parts for a GPU there leave as one message, as PXN aggregates them; of large ones each as it comes.
    """
    here = Place(shape, index)
    inputs, outputs = parts(shape, index), landings(shape, index)
    handed: list[Step] = [Copy(*inputs[index], outputs[index].start)]
    along: list[Step] = []
    arriving: list[Step] = []
    room = outputs[-1].stop
    ours = {rank: parts(shape, rank) for rank in here.server_ranks()}
    for far in range(1, here.servers):
        there = here.rank(here.server + far, here.gpu)
        handed += [Send(peer, *inputs[here.rank(here.server + far, peer)]) for peer in here.others]
        lengths = [its[there].stop - its[there].start for its in ours.values()]
        blocks = dict(zip(ours, lying(lengths, room), strict=True))
        room += sum(lengths)
        if together(shape, lengths):
            along.append(Copy(*inputs[there], blocks[index].start))
            along += [Recv(peer, *blocks[peer], into=OUTPUT) for peer in here.others]
            along.append(Send(there, room - sum(lengths), room, source=OUTPUT))
        else:
            along.append(Send(there, *inputs[there]))
            for peer in here.others:
                along.append(Recv(peer, *blocks[peer], into=OUTPUT))
                along.append(Send(there, *blocks[peer], source=OUTPUT))
        back = Place(shape, here.rank(here.server - far, here.gpu))
        theirs = [outputs[rank] for rank in back.server_ranks()]
        if together(shape, [span.stop - span.start for span in theirs]):
            arriving.append(Recv(back.index, theirs[0].start, theirs[-1].stop, into=OUTPUT))
        else:
            arriving += [Recv(back.index, *outputs[source], into=OUTPUT) for source in (back.index, *back.others)]
    handed += [Send(peer, *inputs[peer]) for peer in here.others]
    along += [Recv(peer, *outputs[peer], into=OUTPUT) for peer in here.others]
    return [Lane(steps) for steps in (along, handed, arriving) if steps]
