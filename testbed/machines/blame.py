"""Whose fault a failure is, the point's or the machine's: a point that failed on one machine is retried on another.

If it fails there, too, the point is at fault, and for the same error no other point is retried. If it succeeds, the
first machine gets a strike.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence

STRIKES = 2
"""After which a machine gets no more points."""


class Blame:
    """Of one sweep. `failed_at` are the machines at which a point has failed, in that order."""

    def __init__(self, retries: int) -> None:
        self._retries = retries
        self._strikes: Counter[str] = Counter()
        self._agreed: set[str] = set()

    def again(self, failed_at: Sequence[str], error: str, machines: Collection[str]) -> bool:
        """Whether it runs once more; these machines are left."""
        elsewhere = set(machines) - set(failed_at)
        doubted = elsewhere and len(failed_at) == 1 and error not in self._agreed
        return bool(doubted) or len(failed_at) <= self._retries

    def failed(self, failed_at: Sequence[str], error: str) -> None:
        if len(set(failed_at)) > 1:
            self._agreed.add(error)

    def done(self, failed_at: Sequence[str], machine: str) -> dict[str, int]:
        """It has come to its end on this machine. The others that get no more points, with their strikes."""
        others = set(failed_at) - {machine}
        self._strikes.update(others)
        return {other: self._strikes[other] for other in others if self._strikes[other] >= STRIKES}
