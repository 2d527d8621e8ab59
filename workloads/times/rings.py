"""Rings, one or several."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import TYPE_CHECKING

from workloads.collectives.schedule import WINDOW
from workloads.times.case import Case, Round, piped, rounds
from workloads.times.messages import Costs, Path, acks_ns, line_ns, received_ns, sent_ns

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


def _hops(case: Case, reduces: Sequence[bool], parallel: int = 1) -> float:
    """A ring of equal hops, each in pieces; `parallel` rings side by side are as many pieces."""
    chunk, right = case.share(case.n), case.shift(1)
    if parallel == 1 and case.chunk is None:
        paths = case.ways.paths(right)
        if len(set(paths)) > 1:
            return ring_over_ns(reduces, chunk, paths, case.costs)
        return rounds(case, [Round(chunk, right, reduce) for reduce in reduces])
    count, piece = case.pieces(case.share(parallel, chunk))
    return piped(case, [(parallel * count, piece, right, reduce) for reduce in reduces], parallel)


def ring_all_reduce(case: Case) -> float:
    return _hops(case, [True] * (case.n - 1) + [False] * (case.n - 1))


def ring_reduce_scatter(case: Case) -> float:
    return _hops(case, [True] * (case.n - 1))


def ring_all_gather(case: Case) -> float:
    return _hops(case, [False] * (case.n - 1))


def bidirectional_all_reduce(case: Case) -> float:
    """Two rings of half the bytes: while one's piece is on the line, the other's is reduced.

    Where a rank's two neighbours are not reached over the same cable, the rings go on side by side.
    """
    reduces = [True] * (case.n - 1) + [False] * (case.n - 1)
    right = case.shift(1)
    paths = case.ways.paths([*right, *case.shift(-1)])[: case.n]
    if len(set(paths)) > 1 and case.chunk is None:
        return ring_over_ns(reduces, case.share(2, case.share(case.n)), paths, case.costs)
    return _hops(case, reduces, parallel=2)


def torus_all_reduce(case: Case) -> float:
    """Dimension by dimension there and back, each over what the one before has left, and when that is through."""
    dims = case.shape.dims
    phases: list[list[Round]] = []
    size = case.size
    for dim in range(len(dims)):
        n, stride = dims[dim], prod(dims[dim + 1 :])
        size = case.share(n, size)
        pairs = [(i, i + ((i // stride + 1) % n - i // stride % n) * stride) for i in range(case.n)]
        phases.append([Round(size, pairs, True)] * (n - 1))
    phases += [[r._replace(reduce=False) for r in phase] for phase in reversed(phases)]
    if case.chunk is None:
        return rounds(case, [r for phase in phases for r in phase])
    return sum(
        piped(case, [(*case.pieces(r.nbytes), r.pairs, r.reduce) for r in phase], last=phase is phases[-1])
        for phase in phases
    )


def _unequal(case: Case, *, reduce: bool) -> float:
    """Hop by hop, each rank at its own pace: of each message the first piece and the last one."""
    import numpy as np

    n, costs = case.n, case.costs
    paths = case.ways.paths(case.shift(1))
    kinds = {path: k for k, path in enumerate(dict.fromkeys(paths))}
    which, rank = np.array([kinds[path] for path in paths]), np.arange(n)
    counts, pieces = (np.array(its) for its in zip(*map(case.pieces, case.chunks), strict=True))

    def of_each(time_ns: Callable[[int, Path], float]) -> NDArray[np.float64]:
        sizes, where = np.unique(pieces, return_inverse=True)
        return np.array([[time_ns(int(size), path) for size in sizes] for path in kinds])[:, where]

    acks = of_each(lambda nbytes, path: acks_ns(nbytes, path, costs))
    received = of_each(lambda nbytes, path: received_ns(nbytes, path, costs)) + acks
    acknowledged = of_each(lambda nbytes, path: sent_ns(nbytes, path, costs)) + acks
    busy = of_each(lambda nbytes, path: line_ns(nbytes, path, costs))
    reduced = reduce * of_each(lambda nbytes, path: costs.reduce_ns(nbytes))[0]
    cycle = np.maximum(busy + acks, costs.post_ns + costs.wake_ns + reduced)
    if case.chunk is not None:
        cycle = np.maximum(cycle, (costs.post_ns + acknowledged + costs.wake_ns) / WINDOW)
    first = last = free = sent = arrived = np.zeros(n)
    for hop in range(n - 1):
        out, into = (rank - hop - reduce) % n, (rank - 1 - hop - reduce) % n
        goes = which, out
        begin = np.maximum(first + costs.post_ns, free)
        end = np.maximum(begin + (counts[out] - 1) * cycle[goes], last + costs.post_ns)
        sent, free = end + acknowledged[goes], end + busy[goes]
        begun, arrived = np.roll(begin + received[goes], 1), np.roll(end + received[goes], 1)
        first = np.maximum(first + costs.post_ns, begun) + costs.wake_ns + reduced[into]
        last = np.maximum(last + costs.post_ns, arrived) + costs.wake_ns + reduced[into]
        last = np.maximum(last, first + (counts[into] - 1) * reduced[into])
    return float(np.where(sent <= arrived, last, np.maximum(sent, last) + costs.wake_ns).max())


def ring_reduce_scatter_v(case: Case) -> float:
    return _unequal(case, reduce=True)


def ring_all_gather_v(case: Case) -> float:
    return _unequal(case, reduce=False)


def ring_over_ns(reduces: Sequence[bool], chunk_bytes: int, paths: Sequence[Path], costs: Costs) -> float:
    """A ring whose edges differ: `paths[i]` leads from rank i to rank i + 1, `reduces[k]` says whether hop k reduces.

    Rank i's hop k + 1 waits for hop k from its left, and for its own message before on the same path.
    """
    import numpy as np  # slow to import; all ranks' hops at once are quick

    def of_each(time_ns: Callable[[Path], float]) -> NDArray[np.float64]:
        known = {path: time_ns(path) for path in set(paths)}
        return np.array([known[path] for path in paths])

    acks = of_each(lambda p: acks_ns(chunk_bytes, p, costs))
    messages = of_each(lambda p: received_ns(chunk_bytes, p, costs)) + acks
    acknowledged = of_each(lambda p: sent_ns(chunk_bytes, p, costs)) + acks
    busy = of_each(lambda p: line_ns(chunk_bytes, p, costs))
    reduce_ns = costs.reduce_ns(chunk_bytes)
    ready = free = sent = arrived = np.zeros(len(paths))
    for reducing in reduces:
        begin = np.maximum(ready + costs.post_ns, free)
        sent = begin + acknowledged
        free = begin + busy
        arrived = np.roll(begin + messages, 1)
        awake = np.maximum(ready + costs.post_ns, arrived) + costs.wake_ns
        ready = awake + reducing * reduce_ns
    ends = np.where(sent <= arrived, ready, np.maximum(sent, ready) + costs.wake_ns)
    return float(ends.max())
