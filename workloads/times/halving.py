"""Recursive halving and doubling, Bruck's all-gather, and aggregated trees."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from workloads.collectives import halving, pat
from workloads.collectives.exchange import distances
from workloads.collectives.grids.hypercube import exchanged
from workloads.collectives.schedule import Program, Recv, Send, Span, program_of
from workloads.times.case import Case, Round, one_way, piped, rounds
from workloads.times.messages import Path, acks_ns, line_ns, received_ns, sent_ns
from workloads.times.ways import Pair


def _halving(case: Case) -> list[tuple[int, int, list[Pair], bool]]:
    folded = halving.Folded(case.n)
    rounds, size = [], case.size
    for distance in halving.distances(folded):
        size = case.share(2, size)
        rounds.append((*case.pieces(size), _partners(folded, distance), True))
    return rounds


def _partners(folded: halving.Folded, distance: int) -> list[Pair]:
    return [(folded.rank(p), folded.rank(p ^ distance)) for p in range(folded.participants)]


def _fold(case: Case, *, back: bool = False) -> list[Pair]:
    folded = halving.Folded(case.n)
    pairs = [(2 * i + 1, 2 * i) for i in range(folded.extra)]
    return [(b, a) for a, b in pairs] if back else pairs


def _doubling(case: Case, block: int) -> list[Round]:
    folded = halving.Folded(case.n)
    return [Round(block * distance, _partners(folded, distance)) for distance in halving.distances(folded)[::-1]]


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
    total += piped(case, _halving(case), last=False) + rounds(case, _doubling(case, block))
    return total + one_way(case, case.size, _fold(case, back=True), last=True)


def recursive_doubling_all_reduce(case: Case) -> float:
    """log2 p exchanges of the whole vector; where n is no power of two, once more before and after."""
    distances = halving.distances(halving.Folded(case.n))[::-1]
    cut = exchanged(case.shape, Span(0, case.shape.count))
    size = max(span.stop - span.start for span in cut) * case.width
    exchanges = [Round(size, _partners(halving.Folded(case.n), far), True) for far in distances]
    total = _fold_in(case) + rounds(case, exchanges * len(cut))
    return total + one_way(case, case.size, _fold(case, back=True), last=True)


def halving_reduce_scatter(case: Case) -> float:
    folded = halving.Folded(case.n)
    total = _fold_in(case) + _readiness(case, halving.distances(folded), in_turn=case.chunk is None)
    if folded.extra:
        total += _unequal_rounds(case, reduce=True)
    elif case.chunk is None:
        total += rounds(case, [Round(nbytes, pairs, reduce) for _, nbytes, pairs, reduce in _halving(case)])
    else:
        total += piped(case, _halving(case))
    return total + one_way(case, case.share(case.n), _fold(case, back=True), last=True)


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
            q, send, keep = plan[k]
            into, out = (keep, send) if reduce else (send, keep)
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
    total = one_way(case, case.share(case.n), _fold(case))
    total += _readiness(case, halving.distances(folded)[::-1], in_turn=True)
    total += _unequal_rounds(case, reduce=False)
    back = case.ways.path(_fold(case, back=True))  # in two messages, on both sides of what the rank itself had
    total += case.message(0, back, both_ways=False, sent=True)
    return total + one_way(case, case.size - case.share(case.n), _fold(case, back=True), last=True)


def bruck_all_gather(case: Case) -> float:
    """ceil(log2 n) rounds of 1, 2, 4, .. chunks."""
    return rounds(
        case, [Round(case.share(case.n) * min(far, case.n - far), case.shift(-far)) for far in distances(case.n)]
    )


def _in_step(case: Case, program: Program) -> float:
    """A rank's one lane, if all ranks do the same at the same times: what it receives k-th has been sent k-th."""
    costs, paths = case.costs, dict[int, Path]()
    at = line = 0.0
    arrives, acknowledged = deque[float](), list[float]()
    for step in program[0].steps:
        if isinstance(step, Send):
            path = paths.get(step.peer) or paths.setdefault(step.peer, case.ways.path(case.shift(step.peer)))
            nbytes = (step.stop - step.start) * case.width
            at += costs.post_ns
            window = program[0].window
            turn = acknowledged[-window] if window and len(acknowledged) >= window else 0.0
            begins = max(at, line, turn)
            acks = acks_ns(nbytes, path, costs)
            line = begins + line_ns(nbytes, path, costs) + acks
            arrives.append(begins + received_ns(nbytes, path, costs) + acks)
            acknowledged.append(begins + sent_ns(nbytes, path, costs) + acks)
        elif isinstance(step, Recv):
            arrived = arrives.popleft()
            at = max(at, arrived + costs.wake_ns) + step.reduce * costs.reduce_ns((step.stop - step.start) * case.width)
    return max(at, acknowledged[-1] + costs.wake_ns)


def pat_all_gather(case: Case) -> float:
    """log2 a + n/a - 1 rounds, of a chunks at most; what of a round is there already goes on while the rest comes."""
    return _in_step(case, program_of(pat.all_gather, case.shape, 0))


def pat_reduce_scatter(case: Case) -> float:
    """The same, each reduced."""
    return _in_step(case, program_of(pat.reduce_scatter, case.shape, 0))
