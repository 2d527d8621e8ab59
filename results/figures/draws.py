"""Draws of one thing, which differ in their seed alone: how sure their mean is.

Student's t: exact where draws are normal, and sober where they are few.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean, stdev

REPLICATE = "seed"
"""The key whose values are draws of the same thing."""
FEWEST = 3
"""Draws below which nothing is said of how sure their mean is."""
_T = (
    *(12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131),
    *(2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042),
)


def t95(freedom: int) -> float:
    """The 97.5th percentile of Student's t, so that 95 % lie between it and its negative."""
    return _T[freedom - 1] if freedom <= len(_T) else 1.960 + 2.46 / freedom


def around_mean(values: Sequence[float]) -> tuple[float, float] | None:
    """The 95 % interval of the mean of figures, which are not negative; None of fewer than FEWEST."""
    if len(values) < FEWEST or not all(map(math.isfinite, values)):
        return None
    mean, half = fmean(values), t95(len(values) - 1) * stdev(values) / math.sqrt(len(values))
    return max(mean - half, 0.0), mean + half
