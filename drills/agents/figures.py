"""The figures of a benchmark: means with intervals, and what two agents differ by on the same worlds."""

from __future__ import annotations

import math
import random
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

RESAMPLES = 2000
LEVEL = 0.95
NOTHING = 1e-9
"""A difference that comes of rounding alone."""

Grouped = Sequence[tuple[str, float]]
"""Values, each with its drill: cases of one drill are no independent samples."""


@dataclass(frozen=True)
class Estimate:
    mean: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.mean:.2f} [{self.low:.2f}, {self.high:.2f}]"


def estimate(values: Grouped) -> Estimate | None:
    """The mean, and its bootstrap interval over drills; None without values. The same values have the same interval."""
    if not values:
        return None
    of: dict[str, list[float]] = defaultdict(list)
    for drill, value in values:
        of[drill].append(value)
    sums = [(sum(of[drill]), len(of[drill])) for drill in sorted(of)]
    draw = random.Random(len(sums))

    def resampled() -> float:
        sample = draw.choices(sums, k=len(sums))
        return math.fsum(total for total, _ in sample) / sum(count for _, count in sample)

    low, high = between(sorted(resampled() for _ in range(RESAMPLES)))
    return Estimate(fmean(value for _, value in values), low, high)


def between(ordered: Sequence[float]) -> tuple[float, float]:
    """What leaves as much below as above it, and LEVEL between."""
    aside = math.floor((1 - LEVEL) / 2 * len(ordered))
    return ordered[aside], ordered[len(ordered) - 1 - aside]


def sign_test(better: int, worse: int) -> float:
    """Exact, two-sided: how likely is it that a fair coin falls at least so unevenly? Ties are left out before."""
    n = better + worse
    tail = sum(math.comb(n, k) for k in range(min(better, worse) + 1))
    return min(1.0, 2 * tail / (1 << n))


@dataclass(frozen=True)
class Paired:
    """Of differences: the second less the first."""

    difference: Estimate
    better: int
    worse: int
    p: float


def paired(drills: Sequence[str], first: Sequence[float], second: Sequence[float]) -> Paired:
    """Of values in the order of the same worlds; the sign test is over drills, by the mean of each."""
    differences = [b - a for a, b in zip(first, second, strict=True)]
    found = estimate(list(zip(drills, differences, strict=True)))
    assert found is not None
    of: dict[str, list[float]] = defaultdict(list)
    for drill, difference in zip(drills, differences, strict=True):
        of[drill].append(difference)
    sums = [math.fsum(ds) for ds in of.values()]
    better, worse = sum(d > NOTHING for d in sums), sum(d < -NOTHING for d in sums)
    return Paired(found, better, worse, sign_test(better, worse))
