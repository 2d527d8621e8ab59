"""One ring, hop by hop: of equal edges, and of edges that differ."""

from __future__ import annotations

from collections.abc import Sequence

from workloads.times.messages import Costs, Path, acks_ns, line_ns, received_ns, sent_ns


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
    n = len(paths)
    messages = [received_ns(chunk_bytes, p, costs) + acks_ns(chunk_bytes, p, costs) for p in paths]
    acknowledged = [sent_ns(chunk_bytes, p, costs) + acks_ns(chunk_bytes, p, costs) for p in paths]
    busy = [line_ns(chunk_bytes, p, costs) for p in paths]
    ready, free, sent = [0.0] * n, [0.0] * n, [0.0] * n
    for reducing in reduces:
        begin = [max(ready[i] + costs.post_ns, free[i]) for i in range(n)]
        sent = [begin[i] + acknowledged[i] for i in range(n)]
        free = [begin[i] + busy[i] for i in range(n)]
        arrived = [begin[i - 1] + messages[i - 1] for i in range(n)]
        awake = [max(ready[i] + costs.post_ns, arrived[i]) + costs.wake_ns for i in range(n)]
        ready = [t + reducing * costs.reduce_ns(chunk_bytes) for t in awake]
    ends = [r if s <= a else max(s, r) + costs.wake_ns for r, s, a in zip(ready, sent, arrived, strict=True)]
    return max(ends)
