"""Trees and chains."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf

from workloads.collectives import exchange, trees
from workloads.times.case import Case
from workloads.times.ways import Pair


def double_binary_tree_all_reduce(case: Case) -> float:
    """Up and down once for one piece, then as fast as the busiest cable carries all of them.

    Below the top siblings share their parent's cable, up and down: with few pieces that is what takes its time.
    """
    half = case.share(2)
    count, piece = case.pieces(half)
    reduced = case.costs.reduce_ns(piece)
    traffic: dict[Pair, float] = {}
    fill = 0.0
    siblings = 0.0
    for tree in (False, True):
        nodes = [trees.binary(i, case.n, second=tree) for i in range(case.n)]
        hops: dict[int, float] = {}  # of each rank to its parent and back
        for i in range(case.n):
            at, top, depth, way_up = i, i, 0, 0.0
            while (above := nodes[at].parent) is not None:
                if at not in hops:
                    up, down = case.ways.path([(at, above)]), case.ways.path([(above, at)])
                    there_and_back = sum(case.message(piece, path, both_ways=False) for path in (up, down))
                    hops[at] = there_and_back + reduced
                way_up += hops[at]
                if at == i:
                    down = case.ways.path([(above, at)])
                    late = case.message(piece, down, both_ways=False, sent=True)
                    way_up += max(0.0, late - case.message(piece, down, both_ways=False))
                    traffic |= {pair: traffic.get(pair, 0.0) + half for pair in ((at, above), (above, at))}
                at, top, depth = above, at, depth + 1
            if way_up > fill:
                line = case.line(piece, case.ways.path([(top, at)]), windowed=False, both_ways=False)
                fill, siblings = way_up, (depth - 1) * (2 * line + reduced)
    heaviest, link = case.ways.busiest({pair: case.wire(nbytes, piece) for pair, nbytes in traffic.items()})
    return fill + max(siblings, (count - 1) / count * link.time_ns(heaviest))


def _chain(case: Case, *, reduce: bool) -> float:
    count, piece = case.pieces(case.size)
    pairs = [(i, i + 1) if not reduce else (i + 1, i) for i in range(case.n - 1)]
    paths = case.ways.paths(pairs)
    reduced = reduce * case.costs.reduce_ns(piece)
    hops = [case.message(piece, path, both_ways=False) + reduced for path in paths]
    acknowledged = case.message(piece, paths[0 if reduce else -1], both_ways=False, sent=True)
    late = max(0.0, acknowledged - hops[0 if reduce else -1])
    line = max(
        case.line(piece, path, windowed=case.chunk is not None, reduce=reduce, both_ways=False) for path in set(paths)
    )
    return sum(hops) + late + (count - 1) * line


def chain_broadcast(case: Case) -> float:
    return _chain(case, reduce=False)


def chain_reduce(case: Case) -> float:
    return _chain(case, reduce=True)


def _tree_down(case: Case, nbytes: Callable[[int], int], longest: int | None = None, *, sent: bool = True) -> float:
    """A binomial tree in which a rank sends its children what they need, one after the other.

    Small messages leave one behind the other, large ones wait until the one before is acknowledged: if a rank's longest
    (`longest`: of its lane) is large.  `sent`: ends when the last ones are acknowledged, too.
    """
    ends = [0.0]

    def below(index: int, at: float) -> None:
        children = trees.binomial(index, case.n).children
        large = longest or max((nbytes(child) for child in children), default=0)
        eager = large <= case.shape.eager * case.width
        acknowledged = at
        for child in children:
            path, size = case.ways.path([(index, child)]), nbytes(child)
            arrived = at + case.message(size, path, both_ways=False)
            ends.append(arrived)
            below(child, arrived)
            acknowledged = at + case.message(size, path, both_ways=False, sent=True)
            at = at + case.line(size, path, windowed=False, both_ways=False) if eager else acknowledged
        if sent:
            ends.append(acknowledged)

    below(0, 0.0)
    return max(ends)


def binomial_broadcast(case: Case) -> float:
    """Whole messages: ceil(log2 n) of them one after the other.  In pieces: the root's line carries that many, too."""
    if case.chunk is None:
        return _tree_down(case, lambda _: case.size)
    count, piece = case.pieces(case.size)
    children = trees.binomial(0, case.n).children
    path = case.ways.path([(0, children[0])])
    line = case.line(piece, path, windowed=True, both_ways=False)
    last = (count - 1) * len(children) * line

    def below(index: int, at: float) -> float:
        ends = [at]
        for k, child in enumerate(trees.binomial(index, case.n).children):
            ends.append(below(child, at + k * line + case.message(piece, path, both_ways=False)))
            ends.append(at + k * line + case.message(piece, path, both_ways=False, sent=True))
        return max(ends)

    return below(0, last)


def binomial_scatter(case: Case, longest: int | None = None, *, sent: bool = True) -> float:
    return _tree_down(case, lambda child: _under(case, child), longest, sent=sent)


def _under(case: Case, rank: int) -> int:
    below = exchange.below(case.shape, rank)
    return (below.stop - below.start) * case.width


def _tree_up(case: Case, nbytes: Callable[[int], int], *, reduce: bool) -> float:
    """A binomial tree in which a rank takes in its children one after the other, the nearest first.

    Unequal ones may meet at its cable: the last is there when the cable has carried all.
    """
    ends = [0.0]

    def taken(index: int, coming: Sequence[tuple[float, int]]) -> float:
        """When the last of these children's messages is there, which begin at these times."""
        free = last = 0.0
        for start, child in sorted(coming):
            path, size, begin = case.ways.path([(child, index)]), nbytes(child), max(start, free)
            free = begin + case.line(size, path, windowed=False, both_ways=False)
            last = max(last, begin + case.message(size, path, both_ways=False))
            ends.append(begin + case.message(size, path, both_ways=False, sent=True))
        return last

    def ready(index: int) -> float:
        at, coming = 0.0, list[tuple[float, int]]()
        for child in reversed(trees.binomial(index, case.n).children):
            path = case.ways.path([(child, index)])
            requested = at + case.message(0, path, both_ways=False) if trees.early(child, case.n) else 0.0
            coming.append((max(ready(child), requested), child))
            at = max(at, taken(index, coming)) + reduce * case.costs.reduce_ns(nbytes(child))
        return at

    return max(ready(0), *ends)


def binomial_reduce(case: Case) -> float:
    """ceil(log2 n) messages and reductions.

    In pieces a rank has the last one when its children have sent theirs, and its cable and host are through with all.
    """
    if case.chunk is None:
        return _tree_up(case, lambda _: case.size, reduce=True)
    count, piece = case.pieces(case.size)
    reduced = case.costs.reduce_ns(piece)

    def ready(index: int) -> tuple[float, float]:
        """The first piece, and the last.

        A child's first one stands behind what others have sent of theirs by then; until it is there, theirs wait, too.
        """
        first = last = busy = 0.0
        begun, streams = inf, list[tuple[float, float]]()  # when children begin, and from piece to piece
        children = trees.binomial(index, case.n).children
        for child in reversed(children):
            path = case.ways.path([(child, index)])
            windowed, line = (case.line(piece, path, windowed=its, both_ways=False) for its in (True, False))
            before, behind = ready(child)
            message = case.message(piece, path, both_ways=False)
            queued = sum(min(count, (before - at) // every + 1) for at, every in streams if at <= before) * line
            queued = max(0.0, queued - max(before - at for at, _ in streams)) if streams else 0.0
            streams.append((before, max(windowed, (behind - before) / max(1, count - 1))))
            first, begun, busy = (
                max(first, before + message + queued) + reduced,
                min(begun, before + message),
                busy + line,
            )
            last = max(
                last,
                max(behind, before + (count - 1) * windowed) + message + reduced,
                begun + count * busy - line + reduced,
            )
        return first, max(first + (count - 1) * len(children) * reduced, last)

    children = trees.binomial(0, case.n).children
    path = case.ways.path([(child, 0) for child in children[:1]])
    hop = case.message(piece, path, both_ways=False) + reduced
    return ready(0)[1] + max(0.0, case.message(piece, path, both_ways=False, sent=True) - hop)


def binomial_gather(case: Case) -> float:
    return _tree_up(case, lambda child: _under(case, child), reduce=False)
