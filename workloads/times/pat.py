"""Parallel aggregated trees: as many rounds as collectives/pat.py has."""

from __future__ import annotations

from workloads.collectives.pat import most_of, rounds
from workloads.times.case import Case, piped


def _trees(case: Case, *, reduce: bool) -> float:
    """What is handed on at once goes on piece by piece."""
    chunk, total = case.share(case.n), 0.0
    every = rounds(case.n, most_of(case.shape))
    if reduce:
        every.reverse()
    run = []
    for k, (far, come) in enumerate(every):
        count, piece = case.pieces(len(come) * chunk)
        run.append((count, piece, case.shift(-far if reduce else far), reduce))
        here, after = (set(come), every[k + 1]) if k + 1 < len(every) else (set(), None)
        if after:
            sent = {c + reduce * after.far for c in after.come}
            received = here if reduce else {c + far for c in here}
            if sent == received:
                continue
        total += piped(case, run, last=after is None)
        run = []
    return total


def all_gather(case: Case) -> float:
    """log2 a + n/a - 1 messages, of a chunks at most."""
    return _trees(case, reduce=False)


def reduce_scatter(case: Case) -> float:
    """The same, each reduced."""
    return _trees(case, reduce=True)
