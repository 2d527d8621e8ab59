"""How sure a ratio is: an interval over seeds, by bootstrap-t, or by Student's t where seeds are few.

The ratio of two means is resampled on the scale of its logarithm, and each resample is divided by its own standard
error (Efron, Tibshirani: An Introduction to the Bootstrap, 12.5): with ten seeds that covers the truth about as often
as it says, where plain percentiles of resamples are too narrow. With fewer, one seed far from the others makes
resamples whose standard error is next to nothing, and an interval of many powers of ten: there it is Student's.

If both sides have the same seeds, pairs are resampled. Figures that can be 0, such as drops, have a difference in place
of a ratio.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from results.figures.draws import t95

FEWEST = 5
"""Seeds on each side below which no interval is given."""
ENOUGH = 10
"""Seeds on each side from which they are resampled."""
RESAMPLES = 1999
LEVEL = 0.95
_EXACT = 1e-9
"""Standard errors below this share are rounding: the ratio is the same for every seed."""

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Interval:
    """Of the ratio B/A, or of the difference B - A if `ratio` is false, at LEVEL."""

    low: float
    high: float
    ratio: bool = True

    @property
    def stands_out(self) -> bool:
        """Whether "no difference" lies outside."""
        none = 1.0 if self.ratio else 0.0
        return not self.low <= none <= self.high


def interval(a: Sequence[float], b: Sequence[float], *, paired: bool) -> Interval | None:
    """The interval for B against A; None with too few values. `paired`: they belong together, one by one."""
    if min(len(a), len(b)) < FEWEST or (paired and len(a) != len(b)):
        return None
    x, y = np.asarray(a, float), np.asarray(b, float)
    if not (np.isfinite(x).all() and np.isfinite(y).all()):
        return None
    ratio = bool((x > 0).all() and (y > 0).all())
    theta, error = (float(v[0]) for v in _estimate(x[None], y[None], ratio, paired))
    if error <= _EXACT * max(abs(theta), 1.0 if ratio else abs(float(x.mean())) + abs(float(y.mean()))):
        return _interval(theta, theta, ratio)
    if min(len(x), len(y)) < ENOUGH:
        half = t95(min(len(x), len(y)) - 1) * error
        return _interval(theta - half, theta + half, ratio)
    draw = np.random.default_rng(1)
    first = draw.integers(len(x), size=(RESAMPLES, len(x)))
    second = first if paired else draw.integers(len(y), size=(RESAMPLES, len(y)))
    thetas, errors = _estimate(x[first], y[second], ratio, paired)
    with np.errstate(divide="ignore", invalid="ignore"):
        t = np.where(errors > 0, (thetas - theta) / errors, np.copysign(np.inf, thetas - theta))
    low, high = np.quantile(t, [(1 - LEVEL) / 2, (1 + LEVEL) / 2], method="inverted_cdf")
    return _interval(theta - float(high) * error, theta - float(low) * error, ratio)


def _estimate(x: Array, y: Array, ratio: bool, paired: bool) -> tuple[Array, Array]:
    """Of each row: the difference of means, or of their logarithms, and its standard error (delta method)."""
    n, m = x.shape[1], y.shape[1]
    mx, my = x.mean(axis=1), y.mean(axis=1)
    sx, sy = (mx, my) if ratio else (np.ones_like(mx), np.ones_like(my))
    dx, dy = (x - mx[:, None]) / sx[:, None], (y - my[:, None]) / sy[:, None]
    theta = np.log(my / mx) if ratio else my - mx
    if paired:
        return theta, np.sqrt(((dy - dx) ** 2).sum(axis=1) / (n - 1) / n)
    return theta, np.sqrt((dx**2).sum(axis=1) / (n - 1) / n + (dy**2).sum(axis=1) / (m - 1) / m)


def _interval(low: float, high: float, ratio: bool) -> Interval:
    """Of a difference, or of the logarithm of a ratio."""
    if not ratio:
        return Interval(low, high, False)
    low, high = (math.exp(value) if value < 700 else math.inf for value in (low, high))
    return Interval(low, high)
