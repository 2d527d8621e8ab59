"""What the hosts' collectives should take on an idle fabric: one formula per algorithm (docs/collectives.md).

All are made of the same few things: a message (workloads/closed_form.py), how long it keeps the slowest part of its way
busy, a reduction, and the busiest cable where many messages meet.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, NamedTuple

from workloads.closed_form import FRAME_BYTES, RETH_BYTES, Costs, Path, acks_ns, line_ns, received_ns, sent_ns
from workloads.collectives import exchange, halving, trees
from workloads.collectives.schedule import WINDOW, Shape
from workloads.collectives.shape import shape_of
from workloads.collectives.ways import Pair, Ways
from workloads.registry import Collective


class Round(NamedTuple):
    """A message of so many bytes between these ranks at the same time, and whether it is reduced."""

    nbytes: int
    pairs: Sequence[Pair]
    reduce: bool = False


@dataclass(frozen=True)
class Case:
    """A collective whose time is asked for: its shape in elements of `width` bytes, its costs, and its ways."""

    shape: Shape
    width: int
    costs: Costs
    ways: Ways

    @classmethod
    def of(
        cls,
        entry: Collective,
        ranks: int,
        size_bytes: int,
        width: int,
        options: Mapping[str, Any],
        seed: int,
        costs: Costs,
        ways: Ways,
    ) -> Case:
        """The case of an entry and a step's `options` (see `shape_of`)."""
        return cls(shape_of(entry, ranks, size_bytes, width, options, seed), width, costs, ways)

    @property
    def n(self) -> int:
        return self.shape.ranks

    @property
    def size(self) -> int:
        """Bytes of the vector."""
        return self.shape.count * self.width

    @property
    def chunk(self) -> int | None:
        """Bytes of a piece."""
        return None if self.shape.chunk is None else self.shape.chunk * self.width

    def share(self, parts: int, of: int | None = None) -> int:
        """Bytes of the largest of so many chunks of the vector, or of so many bytes."""
        count = self.shape.count if of is None else of // self.width
        return -(-count // parts) * self.width

    def pieces(self, nbytes: int) -> tuple[int, int]:
        """How many pieces a message of so many bytes goes in, and the bytes of one."""
        count = max(1, -(-nbytes // self.chunk)) if self.chunk else 1
        return count, self.share(count, nbytes)

    def shift(self, by: int) -> list[Pair]:
        """Everybody to the rank so many on."""
        return [(i, (i + by) % self.n) for i in range(self.n)]

    def message(self, nbytes: int, way: Path, *, both_ways: bool = True, sent: bool = False) -> float:
        """From a rank's deciding to send until the receiver (`sent`: the sender) knows that it has arrived.

        `both_ways`: while as much goes the other way, and its acknowledgements with this.
        """
        done = sent_ns(nbytes, way, self.costs) if sent else received_ns(nbytes, way, self.costs)
        return self.costs.post_ns + done + both_ways * acks_ns(nbytes, way, self.costs) + self.costs.wake_ns

    def line(self, nbytes: int, way: Path, *, windowed: bool, reduce: bool = False, both_ways: bool = True) -> float:
        """What one piece of many takes: of the way, of the host, or of the window that it waits for."""
        busy = line_ns(nbytes, way, self.costs) + both_ways * acks_ns(nbytes, way, self.costs)
        host = self.costs.post_ns + self.costs.wake_ns + reduce * self.costs.reduce_ns(nbytes)
        window = self.message(nbytes, way, sent=True) / WINDOW if windowed else 0.0
        return max(busy, host, window)

    def wire(self, nbytes: float, piece: int) -> float:
        """Bytes on a cable of so many bytes of payload in messages of `piece`."""
        messages = nbytes / max(piece, 1)
        return nbytes + messages * (self.costs.packets(piece) * FRAME_BYTES + RETH_BYTES)


def rounds(case: Case, sequence: Sequence[Round]) -> float:
    """One message after the other, all ranks at a time; ends when the last one is acknowledged, too."""
    total = late = 0.0
    for nbytes, pairs, reduce in sequence:
        way = case.ways.path(pairs)
        message, acknowledged = case.message(nbytes, way), case.message(nbytes, way, sent=True)
        reduced = reduce * case.costs.reduce_ns(nbytes)
        total += message + reduced
        late = max(acknowledged - message - reduced, 0.0) + case.costs.wake_ns if acknowledged > message else 0.0
    return total + late


def piped(case: Case, sequence: Sequence[tuple[int, int, Sequence[Pair], bool]], parallel: int = 1) -> float:
    """Rounds of (pieces, bytes of a piece, pairs, reduce) in which a piece goes on as soon as it is there and reduced.

    The next round begins when its first piece is ready and the line is free: max(piece's cycle, all pieces' line).  Of
    `parallel` lanes the first pieces share the line, and come in together.
    """
    total = end = 0.0
    for k, (count, nbytes, pairs, reduce) in enumerate(sequence):
        way = case.ways.path(pairs)
        line = case.line(nbytes, way, windowed=case.chunk is not None, reduce=reduce)
        cycle = case.message(nbytes, way) + reduce * case.costs.reduce_ns(nbytes) + (k == 0) * (parallel - 1) * line
        end = total + (count - 1) * line + cycle
        total += max(count * line, cycle)
    return end


# Rings


def _hops(case: Case, reduces: Sequence[bool], parallel: int = 1) -> float:
    """A ring of equal hops, each in pieces; `parallel` rings side by side are as many pieces."""
    chunk = case.share(case.n)
    if parallel == 1 and case.chunk is None:
        return rounds(case, [Round(chunk, case.shift(1), reduce) for reduce in reduces])
    count, piece = case.pieces(case.share(parallel, chunk))
    return piped(case, [(parallel * count, piece, case.shift(1), reduce) for reduce in reduces], parallel)


def ring_all_reduce(case: Case) -> float:
    return _hops(case, [True] * (case.n - 1) + [False] * (case.n - 1))


def ring_reduce_scatter(case: Case) -> float:
    return _hops(case, [True] * (case.n - 1))


def ring_all_gather(case: Case) -> float:
    return _hops(case, [False] * (case.n - 1))


def bidirectional_all_reduce(case: Case) -> float:
    """Two rings of half the bytes: while one's piece is on the line, the other's is reduced."""
    return _hops(case, [True] * (case.n - 1) + [False] * (case.n - 1), parallel=2)


def _grid(case: Case, order: Sequence[int]) -> float:
    dims = case.shape.dims
    down: list[Round] = []
    back: list[Round] = []
    size = case.size
    for dim in order:
        n, stride = dims[dim], prod(dims[dim + 1 :])
        size = case.share(n, size)
        pairs = [(i, i + ((i // stride + 1) % n - i // stride % n) * stride) for i in range(case.n)]
        down += [Round(size, pairs, True)] * (n - 1)
        back = [Round(size, pairs, False)] * (n - 1) + back
    if case.chunk is None:
        return rounds(case, down + back)
    return piped(case, [(*case.pieces(r.nbytes), r.pairs, r.reduce) for r in down + back])


def torus_all_reduce(case: Case) -> float:
    """Sum over dimensions of the rings' times, each over what the dimension before has left."""
    return _grid(case, range(len(case.shape.dims)))


def hierarchical_all_reduce(case: Case) -> float:
    """The same with the scale-up domain first."""
    return _grid(case, list(reversed(range(len(case.shape.dims)))))


# Halving and doubling


def _halving(case: Case) -> list[tuple[int, int, Sequence[Pair], bool]]:
    folded = halving.Folded(case.n)
    found: list[tuple[int, int, Sequence[Pair], bool]] = []
    distance, size = folded.participants // 2, case.size
    while distance:
        size = case.share(2, size)
        pairs = [(folded.rank(p), folded.rank(p ^ distance)) for p in range(folded.participants)]
        found.append((*case.pieces(size), pairs, True))
        distance //= 2
    return found


def _fold(case: Case, *, back: bool = False) -> list[Pair]:
    folded = halving.Folded(case.n)
    pairs = [(2 * i + 1, 2 * i) for i in range(folded.extra)]
    return [(b, a) for a, b in pairs] if back else pairs


def _doubling(case: Case, block: int) -> list[Round]:
    folded = halving.Folded(case.n)
    found, distance = [], 1
    while distance < folded.participants:
        pairs = [(folded.rank(p), folded.rank(p ^ distance)) for p in range(folded.participants)]
        found.append(Round(block * distance, pairs))
        distance *= 2
    return found


def _readiness(case: Case, distances: Sequence[int], *, in_turn: bool = False) -> float:
    """The empty messages of late participants: one in each round in which one meets another that is not late.

    `in_turn`: they send on when that is acknowledged.
    """
    folded = halving.Folded(case.n)
    total = 0.0
    for distance, late in zip(distances, halving.late(folded, distances), strict=False):
        if met := {p ^ distance for p in late} - late:
            pair = (folded.rank(min(met) ^ distance), folded.rank(min(met)))
            total += case.message(0, case.ways.path([pair]), both_ways=False, sent=in_turn)
    return total


def _one_way(case: Case, nbytes: int, pairs: Sequence[Pair], *, last: bool = False) -> float:
    """A message that nothing meets.  `last`: until it is acknowledged, too."""
    if not pairs:
        return 0.0
    way = case.ways.path(pairs)
    received = case.message(nbytes, way, both_ways=False)
    return max(received, case.message(nbytes, way, both_ways=False, sent=True)) if last else received


def _fold_in(case: Case) -> float:
    """The vectors of the ranks that take no part come in and are reduced."""
    if not (pairs := _fold(case)):
        return 0.0
    count, piece = case.pieces(case.size)
    way = case.ways.path(pairs)
    line = case.line(piece, way, windowed=case.chunk is not None, reduce=True, both_ways=False)
    return (count - 1) * line + case.message(piece, way, both_ways=False) + case.costs.reduce_ns(piece)


def halving_doubling_all_reduce(case: Case) -> float:
    """2 log2 p rounds; where n is no power of two, the whole vector once more before and after."""
    block = case.share(halving.Folded(case.n).participants)
    total = _fold_in(case) + _readiness(case, halving.distances(halving.Folded(case.n)))
    total += piped(case, _halving(case)) + rounds(case, _doubling(case, block))
    return total + _one_way(case, case.size, _fold(case, back=True), last=True)


def halving_reduce_scatter(case: Case) -> float:
    folded = halving.Folded(case.n)
    total = _fold_in(case) + _readiness(case, halving.distances(folded), in_turn=case.chunk is None)
    if folded.extra:
        total += _unequal_rounds(case, reduce=True)
    elif case.chunk is None:
        total += rounds(case, [Round(nbytes, pairs, reduce) for _, nbytes, pairs, reduce in _halving(case)])
    else:
        total += piped(case, _halving(case))
    return total + _one_way(case, case.share(case.n), _fold(case, back=True), last=True)


def _unequal_rounds(case: Case, *, reduce: bool) -> float:
    """Halving (doubling, where nothing is reduced) over blocks of one chunk or two; each rank at its own pace.

    A rank goes on when it has received, and what it sent is acknowledged.
    """
    folded = halving.Folded(case.n)
    blocks = folded.blocks(case.shape.count)
    plans = [halving.rounds_of(p, blocks) for p in range(folded.participants)]
    order = range(len(plans[0])) if reduce else reversed(range(len(plans[0])))
    at = [0.0] * folded.participants
    for k in order:
        before, at = at, list(at)
        for p, plan in enumerate(plans):
            q, theirs, ours = plan[k].partner, plan[k].theirs, plan[k].ours
            into, out = (ours, theirs) if reduce else (theirs, ours)
            way = case.ways.path([(folded.rank(q), folded.rank(p))])
            received, sent = (span.stop - span.start for span in (into, out))
            arrived = max(before[p], before[q]) + _piecewise(case, received * case.width, way, reduce=reduce)
            acknowledged = before[p] + case.message(sent * case.width, way, sent=True)
            at[p] = max(arrived, acknowledged)
    return max(at)


def _piecewise(case: Case, nbytes: int, way: Path, *, reduce: bool) -> float:
    """A message that is reduced while it comes in, if it comes in pieces."""
    count, piece = case.pieces(nbytes)
    line = case.line(piece, way, windowed=case.chunk is not None, reduce=reduce)
    return (count - 1) * line + case.message(piece, way) + reduce * case.costs.reduce_ns(piece)


def doubling_all_gather(case: Case) -> float:
    folded = halving.Folded(case.n)
    if not folded.extra:
        return rounds(case, _doubling(case, case.share(case.n)))
    total = _one_way(case, case.share(case.n), _fold(case))
    total += _readiness(case, halving.distances(folded)[::-1], in_turn=True)
    total += _unequal_rounds(case, reduce=False)
    back = case.ways.path(_fold(case, back=True))  # in two messages, on both sides of what the rank itself had
    total += case.message(0, back, both_ways=False, sent=True)
    return total + _one_way(case, case.size - case.share(case.n), _fold(case, back=True), last=True)


def bruck_all_gather(case: Case) -> float:
    """ceil(log2 n) rounds of 1, 2, 4, .. chunks."""
    found, distance = [], 1
    while distance < case.n:
        many = min(distance, case.n - distance)
        found.append(Round(case.share(case.n) * many, case.shift(-distance)))
        distance *= 2
    return rounds(case, found)


# Trees


def double_binary_tree_all_reduce(case: Case) -> float:
    """Up and down once for one piece, then as fast as the busiest cable carries all of them.

    Below the top siblings share their parent's cable, up and down: with few pieces that is what takes its time.
    """
    half = case.share(2)
    count, piece = case.pieces(half)
    traffic: dict[Pair, float] = {}
    depth = 0
    for tree in (False, True):
        nodes = [trees.binary(i, case.n, second=tree) for i in range(case.n)]
        for i, node in enumerate(nodes):
            level, above = 0, node.parent
            if above is not None:
                for pair in ((i, above), (above, i)):
                    traffic[pair] = traffic.get(pair, 0.0) + half
            while above is not None:
                level, above = level + 1, nodes[above].parent
            depth = max(depth, level)
    way = case.ways.path([next(iter(traffic))])
    most, link = case.ways.busiest({pair: case.wire(nbytes, piece) for pair, nbytes in traffic.items()})
    message, reduced = case.message(piece, way, both_ways=False), case.costs.reduce_ns(piece)
    siblings = (depth - 1) * (2 * case.line(piece, way, windowed=False, both_ways=False) + reduced)
    return depth * (2 * message + reduced) + max(siblings, (count - 1) / count * link.time_ns(most))


def _chain(case: Case, *, reduce: bool) -> float:
    count, piece = case.pieces(case.size)
    pairs = [(i, i + 1) if not reduce else (i + 1, i) for i in range(case.n - 1)]
    way = case.ways.path(pairs)
    line = case.line(piece, way, windowed=case.chunk is not None, reduce=reduce, both_ways=False)
    hop = case.message(piece, way, both_ways=False) + reduce * case.costs.reduce_ns(piece)
    return (case.n - 1) * hop + (count - 1) * line


def chain_broadcast(case: Case) -> float:
    return _chain(case, reduce=False)


def chain_reduce(case: Case) -> float:
    return _chain(case, reduce=True)


def _tree_down(case: Case, nbytes: Callable[[int], int]) -> float:
    """A binomial tree in which a rank sends its children what they need, one after the other."""
    ends = [0.0]

    def below(index: int, at: float) -> None:
        for child in trees.binomial(index, case.n).children:
            way = case.ways.path([(index, child)])
            below(child, at + case.message(nbytes(child), way, both_ways=False))
            at += case.message(nbytes(child), way, both_ways=False, sent=True)
        ends.append(at)

    below(0, 0.0)
    return max(ends)


def binomial_broadcast(case: Case) -> float:
    """Whole messages: ceil(log2 n) of them one after the other.  In pieces: the root's line carries that many, too."""
    if case.chunk is None:
        return _tree_down(case, lambda _: case.size)
    count, piece = case.pieces(case.size)
    children = trees.binomial(0, case.n).children
    way = case.ways.path([(0, children[0])])
    line = case.line(piece, way, windowed=True, both_ways=False)
    last = (count - 1) * len(children) * line

    def below(index: int, at: float) -> float:
        ends = [at]
        for k, child in enumerate(trees.binomial(index, case.n).children):
            ends.append(below(child, at + k * line + case.message(piece, way, both_ways=False)))
        return max(ends)

    return below(0, last)


def binomial_scatter(case: Case) -> float:
    return _tree_down(case, lambda child: _under(case, child))


def _under(case: Case, rank: int) -> int:
    below = exchange.below(case.shape, rank)
    return (below.stop - below.start) * case.width


def _tree_up(case: Case, nbytes: Callable[[int], int], *, reduce: bool) -> float:
    """A binomial tree in which a rank takes in its children one after the other, the nearest first."""

    def ready(index: int) -> float:
        at = 0.0
        for child in reversed(trees.binomial(index, case.n).children):
            way = case.ways.path([(child, index)])
            asked = at + case.message(0, way, both_ways=False) if trees.early(child, case.n) else 0.0
            arrived = max(ready(child), asked) + case.message(nbytes(child), way, both_ways=False)
            at = max(at, arrived) + reduce * case.costs.reduce_ns(nbytes(child))
        return at

    return ready(0)


def binomial_reduce(case: Case) -> float:
    """ceil(log2 n) messages and reductions; in pieces, the root's cable carries all of its children's."""
    if case.chunk is None:
        return _tree_up(case, lambda _: case.size, reduce=True)
    count, piece = case.pieces(case.size)
    children = trees.binomial(0, case.n).children
    way = case.ways.path([(children[0], 0)])
    line = case.line(piece, way, windowed=True, reduce=True, both_ways=False)
    fill = len(children) * (case.message(piece, way, both_ways=False) + case.costs.reduce_ns(piece))
    return fill + (count - 1) * len(children) * line


def binomial_gather(case: Case) -> float:
    return _tree_up(case, lambda child: _under(case, child), reduce=False)


# Exchanges


def _flood(case: Case, traffic: dict[Pair, int]) -> float:
    """All messages at once: the busiest cable carries its bytes, and the last message still has its way to go."""
    traffic = {pair: nbytes for pair, nbytes in traffic.items() if pair[0] != pair[1]}
    if not traffic:
        return 0.0
    most, link = case.ways.busiest({pair: case.wire(nbytes, max(nbytes, 1)) for pair, nbytes in traffic.items()})
    longest = max(traffic, key=lambda pair: traffic[pair])
    way = case.ways.path([longest])
    nbytes = traffic[longest]
    alone = case.message(nbytes, way, both_ways=False)
    acknowledged = case.message(nbytes, way, both_ways=False, sent=True)
    busy = link.time_ns(case.wire(nbytes, max(nbytes, 1)))
    return max(alone, acknowledged) + max(0.0, link.time_ns(most) - busy)


def linear_scatter(case: Case) -> float:
    return _flood(case, {(0, i): case.share(case.n) for i in range(1, case.n)})


def linear_gather(case: Case) -> float:
    return _flood(case, {(i, 0): case.share(case.n) for i in range(1, case.n)})


def scatter_all_gather_broadcast(case: Case) -> float:
    way, chunk = case.ways.path(case.shift(1)), case.share(case.n)
    hop = max(case.message(chunk, way), case.message(chunk, way, sent=True))  # also here one message at a time
    return binomial_scatter(case) + (case.n - 1) * hop


def _unequal(case: Case) -> dict[Pair, int]:
    if not case.shape.counts:
        chunk = case.share(case.n)
        return {(a, b): chunk for a in range(case.n) for b in range(case.n)}
    return {(a, b): n * case.width for a, row in enumerate(case.shape.counts) for b, n in enumerate(row)}


def spread_all_to_all(case: Case) -> float:
    """The busiest cable: n - 1 chunks, where they are equal and every rank has its own."""
    return _flood(case, _unequal(case))


def pairwise_all_to_all(case: Case) -> float:
    """n - 1 rounds, each as long as its largest message: a rank goes on when it has what comes and its own is there."""
    sizes, n = _unequal(case), case.n
    at, free = [0.0] * n, [0.0] * n  # ready for the next round; when the last message into a rank was through
    for k in range(1, n):
        pairs = case.shift(k)
        way = case.ways.path(pairs)
        line = {p: line_ns(sizes[p], way, case.costs) for p in pairs}
        through = {(a, b): max(at[a] + case.message(sizes[a, b], way), free[b] + line[a, b]) for a, b in pairs}
        more = case.message(0, way, sent=True) - case.message(0, way)
        at = [max(through[(i - k) % n, i], through[i, (i + k) % n] + more) for i in range(n)]
        free = [through[(i - k) % n, i] for i in range(n)]
    return max(at)


def m_to_n(case: Case) -> float:
    """The busiest cable: the most popular receiver's, or a sender's.

    A sender shares its cable evenly among all to whom it still sends, so that a few senders cannot fill a receiver's.
    """
    return _flood(case, {pair: n for pair, n in _unequal(case).items() if n})


def dissemination_barrier(case: Case) -> float:
    """ceil(log2 n) empty messages."""
    found, distance = [], 1
    while distance < case.n:
        found.append(Round(0, case.shift(distance)))
        distance *= 2
    return rounds(case, found)


def pair_send_recv(case: Case) -> float:
    return _one_way(case, case.size, [(0, 1)], last=True)


def shift_send_recv(case: Case) -> float:
    return rounds(case, [Round(case.size, case.shift(1))])
