"""What moves without being reduced: all-to-all, scatter, gather, Bruck's all-gather, barrier, send and receive."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

from workloads.collectives import ring
from workloads.collectives.schedule import OUTPUT, Copy, Lane, Program, Recv, Send, Shape, Span, Step, spans
from workloads.collectives.trees import binomial, collecting


def parts(shape: Shape, index: int) -> Sequence[Span]:
    """What rank `index`'s vector holds for each rank."""
    if not shape.counts:
        return spans(shape.count, shape.ranks)
    edges = [0, *accumulate(shape.counts[index])]
    return [Span(a, b) for a, b in zip(edges, edges[1:], strict=False)]


def landings(shape: Shape, index: int) -> list[Span]:
    """Where in rank `index`'s output lies what comes from each rank: in rank order, without gaps."""
    if shape.counts:
        lengths = [row[index] for row in shape.counts]
    else:
        part = spans(shape.count, shape.ranks)[index]
        lengths = [part.stop - part.start] * shape.ranks
    edges = [0, *accumulate(lengths)]
    return [Span(a, b) for a, b in zip(edges, edges[1:], strict=False)]


def _all_to_all(shape: Shape, index: int, *, paced: bool) -> Program:
    """In round k to the rank k on, from the rank k back."""
    n = shape.ranks
    inputs, outputs = parts(shape, index), landings(shape, index)
    sends = [Send((index + k) % n, *inputs[(index + k) % n]) for k in range(1, n)]
    receives = [Recv((index - k) % n, *outputs[(index - k) % n], into=OUTPUT) for k in range(1, n)]
    steps: list[Step] = [Copy(*inputs[index], outputs[index].start)]
    if not paced:
        return [Lane([*steps, *sends, *receives])]
    for send, receive in zip(sends, receives, strict=True):
        steps += [send, receive]
    return [Lane(steps, 1)]


def pairwise_all_to_all(shape: Shape, index: int) -> Program:
    """One round after the other: a rank goes on when it has received, and what it sent is acknowledged."""
    return _all_to_all(shape, index, paced=True)


def spread_all_to_all(shape: Shape, index: int) -> Program:
    """All at once."""
    return _all_to_all(shape, index, paced=False)


def _lane(shape: Shape, steps: Sequence[Send | Recv], window: int | None = None) -> Lane:
    """Where parts are unequal, who has nothing for somebody sends him nothing; of another size there may be some."""
    sent = [step for step in steps if step.start < step.stop] if shape.counts else steps
    return Lane(sent, window, channels={(step.peer, step.channel) for step in steps})


def m_to_n(shape: Shape, index: int) -> Program:
    """Each of the first `senders` ranks to each of the others, all at once, whoever is ready."""
    inputs, outputs = parts(shape, index), landings(shape, index)
    first, n = shape.senders, shape.ranks
    if index < first:  # each begins with another receiver
        receivers = n - first
        order = [first + (index + k) % receivers for k in range(receivers)]
        return [_lane(shape, [Send(peer, *inputs[peer]) for peer in order])]
    return [_lane(shape, [Recv(peer, *outputs[peer], into=OUTPUT) for peer in range(first)])]


def linear_scatter(shape: Shape, index: int) -> Program:
    """The root sends each rank its chunk."""
    chunks = shape.chunks
    if index:
        return [_lane(shape, [Recv(0, *chunks[index])])]
    return [_lane(shape, [Send(peer, *chunks[peer]) for peer in range(1, shape.ranks)])]


def linear_gather(shape: Shape, index: int) -> Program:
    """Each rank sends the root its chunk."""
    chunks = shape.chunks
    if index:
        return [_lane(shape, [Send(0, *chunks[index])])]
    return [_lane(shape, [Recv(peer, *chunks[peer]) for peer in range(1, shape.ranks)])]


def below(shape: Shape, rank: int) -> Span:
    """The chunks of `rank` and all under it in the binomial tree, which lie side by side."""
    chunks = shape.chunks
    under = rank & -rank if rank else shape.ranks
    return Span(chunks[rank].start, chunks[min(rank + under, shape.ranks) - 1].stop)


def binomial_scatter(shape: Shape, index: int) -> Program:
    """Each gives its child the chunks of all that are under it, the largest part first."""
    node = binomial(index, shape.ranks)
    receives = [] if node.parent is None else [Recv(node.parent, *below(shape, index))]
    sends = [Send(child, *below(shape, child)) for child in node.children]
    longest = max((step.stop - step.start for step in sends), default=0)
    return [_lane(shape, [*receives, *sends], shape.in_turn(longest))]


def binomial_gather(shape: Shape, index: int) -> Program:
    """Each collects the chunks of all that are under it, then hands them up."""
    node = binomial(index, shape.ranks)
    lane = Lane(collecting(node, index, shape.ranks, lambda rank: below(shape, rank), reduce=False))
    if not shape.counts:
        return [lane]
    up = {child: below(shape, child) for child in (*node.children, index)}
    full = {*(child for child in node.children if up[child].start < up[child].stop)}
    if up[index].start < up[index].stop and node.parent is not None:
        full.add(node.parent)
    steps = [step for step in lane.steps if isinstance(step, Send | Recv) and step.peer in full]
    return [Lane(steps, channels=lane.channels)]


def scatter_all_gather_broadcast(shape: Shape, index: int) -> Program:
    """Van de Geijn's broadcast: a binomial scatter, then a ring all-gather of the chunks."""
    n = shape.ranks
    (scatter,) = binomial_scatter(shape, index)
    left, right = (index - 1) % n, (index + 1) % n

    def steps() -> list[Step]:
        return [*scatter.steps, *ring.around(ring.gathering(n, index), spans(shape.count, n), left, right, None, 1)]

    return [Lane(steps, shape.in_turn(shape.count), channels=scatter.channels | ring.neighbours(left, right, 1))]


def bruck_all_gather(shape: Shape, index: int) -> Program:
    """Bruck et al. 1997: in round k the 2^k chunks from ours on go 2^k ranks back; ceil(log2 n) rounds for any n."""
    n = shape.ranks
    chunks = shape.chunks
    steps: list[Step] = []
    for distance in distances(n):
        count = min(distance, n - distance)
        steps += [Send((index - distance) % n, *run) for run in _cyclic(chunks, index, count)]
        steps += [Recv((index + distance) % n, *run) for run in _cyclic(chunks, (index + distance) % n, count)]
    return [Lane(steps)]


def _cyclic(chunks: Sequence[Span], first: int, count: int) -> Sequence[Span]:
    """`count` chunks from `first` on, going round: one run of elements, or two."""
    last = first + count
    if last <= len(chunks):
        return [Span(chunks[first].start, chunks[last - 1].stop)]
    return [Span(chunks[first].start, chunks[-1].stop), Span(0, chunks[last - len(chunks) - 1].stop)]


def distances(ranks: int) -> list[int]:
    """The distances of a dissemination's rounds: each rank sends that far right, and receives from as far left."""
    return [1 << k for k in range((ranks - 1).bit_length())]


def dissemination_barrier(shape: Shape, index: int) -> Program:
    """Hensgen, Finkel, Manber 1988: in round k an empty message goes 2^k ranks on; ceil(log2 n) rounds."""
    n = shape.ranks
    steps: list[Step] = []
    for distance in distances(n):
        steps += [Send((index + distance) % n, 0, 0), Recv((index - distance) % n, 0, 0)]
    return [Lane(steps)]


def pair_send_recv(shape: Shape, index: int) -> Program:
    """The first rank sends, the second receives."""
    if index:
        return [Lane([Recv(0, 0, shape.count, into=OUTPUT)])]
    return [Lane([Send(1, 0, shape.count)])]


def shift_send_recv(shape: Shape, index: int) -> Program:
    """As nccl-tests' sendrecv: everybody sends to the next rank and receives from the one before."""
    n = shape.ranks
    return [Lane([Send((index + 1) % n, 0, shape.count), Recv((index - 1) % n, 0, shape.count, into=OUTPUT)])]
