"""Rings, one or several."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import TYPE_CHECKING

from workloads.times.case import Case, Round, piped, rounds
from workloads.times.messages import Costs, Path, acks_ns, line_ns, received_ns, sent_ns

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


def _hops(case: Case, reduces: Sequence[bool], parallel: int = 1) -> float:
    """A ring of equal hops, each in pieces; `parallel` rings side by side are as many pieces."""
    chunk = case.share(case.n)
    if parallel == 1 and case.chunk is None:
        paths = case.ways.paths(case.shift(1))
        if len(set(paths)) > 1:
            return ring_over_ns(reduces, chunk, paths, case.costs)
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
    """Two rings of half the bytes: while one's piece is on the line, the other's is reduced.

    Where a rank's two neighbours are not reached over the same cable, the rings go on side by side.
    """
    reduces = [True] * (case.n - 1) + [False] * (case.n - 1)
    right = case.shift(1)
    paths = case.ways.paths([*right, *case.shift(-1)])[: case.n]
    if len(set(paths)) > 1 and case.chunk is None:
        return ring_over_ns(reduces, case.share(2, case.share(case.n)), paths, case.costs)
    return _hops(case, reduces, parallel=2)


def _grid(case: Case, order: Sequence[int]) -> float:
    """Dimension by dimension there and back; each begins when the one before is through."""
    dims = case.shape.dims
    phases: list[list[Round]] = []
    size = case.size
    for dim in order:
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


def torus_all_reduce(case: Case) -> float:
    """Sum over dimensions of the rings' times, each over what the dimension before has left."""
    return _grid(case, range(len(case.shape.dims)))


def hierarchical_all_reduce(case: Case) -> float:
    """The same with the scale-up domain first."""
    return _grid(case, list(reversed(range(len(case.shape.dims)))))


# Hop by hop: of equal edges, and of edges that differ


def ring_all_reduce_ns(ranks: int, size_bytes: int, path: Path, costs: Costs) -> float:
    """A reduce-scatter and an all-gather of n - 1 hops each."""
    return _ring_ns([True] * (ranks - 1) + [False] * (ranks - 1), -(-size_bytes // ranks), path, costs)


def ring_reduce_scatter_ns(ranks: int, size_bytes: int, path: Path, costs: Costs) -> float:
    """n - 1 hops, a reduction after each."""
    return _ring_ns([True] * (ranks - 1), -(-size_bytes // ranks), path, costs)


def ring_all_gather_ns(ranks: int, size_bytes: int, path: Path, costs: Costs) -> float:
    """n - 1 hops."""
    return _ring_ns([False] * (ranks - 1), -(-size_bytes // ranks), path, costs)


def _ring_ns(reduces: list[bool], chunk_bytes: int, path: Path, costs: Costs) -> float:
    """Equal hops: post, message, wake up, and reduce where the hop does; then the last message's acknowledgement."""
    message = received_ns(chunk_bytes, path, costs) + acks_ns(chunk_bytes, path, costs)
    reduce = costs.reduce_ns(chunk_bytes)
    hops = len(reduces) * (costs.post_ns + message + costs.wake_ns) + sum(reduces) * reduce
    acknowledged = sent_ns(chunk_bytes, path, costs) + acks_ns(chunk_bytes, path, costs)
    if acknowledged <= message:  # both completions are there when the rank wakes up
        return hops
    late = acknowledged - message - costs.wake_ns - reduces[-1] * reduce
    return hops + max(late, 0.0) + costs.wake_ns


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
