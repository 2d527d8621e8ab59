"""What moves without being reduced."""

from __future__ import annotations

from collections import Counter

from workloads.collectives.exchange import distances
from workloads.times.case import Case, Round, one_way, rounds
from workloads.times.messages import line_ns
from workloads.times.trees import binomial_scatter
from workloads.times.ways import Pair


def _flood(case: Case, traffic: dict[Pair, int]) -> float:
    """All messages at once: the busiest cable carries its bytes, and the last message still has its way to go."""
    traffic = {pair: nbytes for pair, nbytes in traffic.items() if pair[0] != pair[1]}
    if not traffic:
        return 0.0
    heaviest, link = case.ways.busiest({pair: case.wire(nbytes, max(nbytes, 1)) for pair, nbytes in traffic.items()})
    nbytes = max(traffic.values())
    alone = max(
        case.message(nbytes, path, both_ways=False, sent=sent)
        for path in {case.ways.path([pair]) for pair in traffic}
        for sent in (False, True)
    )
    busy = link.time_ns(case.wire(nbytes, max(nbytes, 1)))
    sent = max(sum(a == source for a, _ in traffic) for source, _ in traffic)
    return alone + max(link.time_ns(heaviest) - busy, (sent - 1) * case.costs.post_ns)


def linear_scatter(case: Case) -> float:
    return _flood(case, {(0, i): case.chunks[i] for i in range(1, case.n)})


def linear_gather(case: Case) -> float:
    return _flood(case, {(i, 0): case.chunks[i] for i in range(1, case.n)})


def scatter_all_gather_broadcast(case: Case) -> float:
    chunk, hops = case.share(case.n), case.shift(1)
    if case.shape.count <= case.shape.eager:
        return binomial_scatter(case, sent=False) + rounds(case, [Round(chunk, hops)] * (case.n - 1))
    path = case.ways.path(hops)
    hop = max(case.message(chunk, path), case.message(chunk, path, sent=True))  # also here one message at a time
    return binomial_scatter(case, case.size) + (case.n - 1) * hop


def unequal(case: Case) -> dict[Pair, int]:
    if not case.shape.counts:
        chunk = case.share(case.n)
        return {(a, b): chunk for a in range(case.n) for b in range(case.n)}
    return {(a, b): n * case.width for a, row in enumerate(case.shape.counts) for b, n in enumerate(row)}


def spread_all_to_all(case: Case) -> float:
    """The busiest cable: n - 1 chunks, where they are equal and every rank has its own."""
    return _flood(case, unequal(case))


def pairwise_all_to_all(case: Case) -> float:
    """n - 1 rounds, each as long as its largest message: a rank goes on when it has what comes and its own is there."""
    sizes, n = unequal(case), case.n
    at, free = [0.0] * n, [0.0] * n  # ready for the next round; when the last message into a rank was through
    for k in range(1, n):
        pairs = case.shift(k)
        path = case.ways.path(pairs)
        line = {p: line_ns(sizes[p], path, case.costs) for p in pairs}
        done = {(a, b): max(at[a] + case.message(sizes[a, b], path), free[b] + line[a, b]) for a, b in pairs}
        ack_ns = case.message(0, path, sent=True) - case.message(0, path)
        at = [max(done[(i - k) % n, i], done[i, (i + k) % n] + ack_ns) for i in range(n)]
        free = [done[(i - k) % n, i] for i in range(n)]
    return max(at)


def m_to_n(case: Case) -> float:
    """The busiest cable: the most popular receiver's, or a sender's.

    A sender shares its cable evenly among all to whom it still sends, a receiver among all from whom it still receives,
    so that few senders cannot fill a receiver's cable before they have nothing else to send, nor the reverse.
    """
    sizes = {pair: n for pair, n in unequal(case).items() if n}
    flood = _flood(case, sizes)
    if not sizes:
        return flood
    heaviest, link = case.ways.busiest({pair: case.wire(n, n) for pair, n in sizes.items()})
    evenly = link.time_ns(_evenly({pair: case.wire(n, n) for pair, n in sizes.items()}))
    return flood + max(0.0, evenly - link.time_ns(heaviest))


def _evenly(left: dict[Pair, float]) -> float:
    """Bytes that a cable carries until all is sent, by senders that serve all their receivers evenly.

    A receiver's cable is shared likewise; each message gets the smaller of its two shares.
    """
    left, total = dict(left), 0.0
    while left:
        out, into = Counter(a for a, _ in left), Counter(b for _, b in left)
        rates = {(a, b): 1 / max(out[a], into[b]) for a, b in left}
        step = min(left[pair] / rate for pair, rate in rates.items())
        total += step
        left = {pair: n - step * rates[pair] for pair, n in left.items() if n - step * rates[pair] > 1e-6}
    return total


def hypercube_all_to_all(case: Case) -> float:
    """log2 n messages of half a vector."""
    half = case.n // 2 * case.share(case.n)
    order = (1 << k for k in range(case.n.bit_length() - 1))
    return rounds(case, [Round(half, [(i, i ^ bit) for i in range(case.n)]) for bit in order])


def dissemination_barrier(case: Case) -> float:
    """ceil(log2 n) empty messages."""
    return rounds(case, [Round(0, case.shift(far)) for far in distances(case.n)])


def pair_send_recv(case: Case) -> float:
    return one_way(case, case.size, [(0, 1)], last=True)


def shift_send_recv(case: Case) -> float:
    return rounds(case, [Round(case.size, case.shift(1))])
