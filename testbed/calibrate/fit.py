"""Constants from times: least squares of log(model / measured), with priors, and what that tells.

Each row weighs by its scatter, and a row that is far off weighs less (soft L1). All constants are positive, so their
logarithms are fitted, from the middle of the priors on, by Gauss and Newton's method with halved steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

STEP = 0.04
"""Of a logarithm, by which derivatives are taken: the model has small jumps, where messages change places at a NIC."""
BOTH_WAYS = 0.1
"""Likewise at the end, in both directions, for what the rows tell."""
MOST_STEPS = 25
MOST_HALVES = 6
ENOUGH = 0.02
"""Of the sum of squares: what would gain less moves no constant by more than a seventh of its standard deviation."""
SMALL = 2e-3
"""Likewise, as a share of it: the model has kinks, and steps over them zigzag."""
FAR = 1.6449
"""Standard deviations from the middle to the ends of an interval of 90 %."""
FARTHEST = 4.0
"""A constant stays within so many standard deviations of its prior."""
DRAWS = 200
SEED = 1

Array = NDArray[Any]


class Model(Protocol):
    """Logarithms of times of R rows, by those of P constants."""

    def at(self, x: Array, steps: Array | float) -> tuple[Array, Array]:
        """The times, and their derivatives (R, P): what a step of each constant changes, by that step."""


@dataclass(frozen=True)
class Problem:
    """`y`: logarithms of measured times, `sigma`: their scatter; `prior` and `prior_sigma` of logarithms.

    `correlation`: of what is known beforehand; None: of each constant by itself.
    """

    model: Model
    y: Array
    sigma: Array
    prior: Array
    prior_sigma: Array
    correlation: Array | None = None

    @cached_property
    def precision(self) -> Array:
        """Of the prior: the inverse of its covariance."""
        each = np.diag(1 / self.prior_sigma)
        inverse: Array = each @ each if self.correlation is None else each @ np.linalg.inv(self.correlation) @ each
        return inverse


@dataclass(frozen=True)
class Fit:
    """`x`: logarithms of constants; `f`, `jacobian` of the model there; `weights` of rows, 1 where nothing is odd."""

    problem: Problem
    x: Array
    f: Array
    jacobian: Array
    weights: Array
    covariance: Array

    @property
    def residuals(self) -> Array:
        """log(model / measured)."""
        return self.f - self.problem.y

    @property
    def sd(self) -> Array:
        sd: Array = np.sqrt(np.diag(self.covariance))
        return sd

    @property
    def width(self) -> Array:
        """Posterior / prior, of each constant."""
        width: Array = self.sd / self.problem.prior_sigma
        return width


def too_good(fitted: Fit) -> float:
    """By what the residuals are too small, because constants were fitted to the same rows: sqrt(n / (n - told))."""
    rows, told = len(fitted.f), float(np.sum(np.clip(1 - fitted.width**2, 0, 1)))
    return float(np.sqrt(rows / max(rows - told, 0.25 * rows)))


def fit(problem: Problem, before: Fit | None = None) -> Fit:
    """The constants that fit best; `before`: a fit of the same model and rows, from which it goes on."""
    x = problem.prior.copy() if before is None else before.x
    low = problem.prior - FARTHEST * problem.prior_sigma
    high = problem.prior + FARTHEST * problem.prior_sigma
    f, jacobian = problem.model.at(x, STEP) if before is None else (before.f, before.jacobian)
    value = _value(problem, x, f)
    for _ in range(MOST_STEPS):
        step, gain = _step(problem, x, f, jacobian)
        if gain < ENOUGH:
            break
        for half in range(MOST_HALVES):
            tried = np.clip(x + step * 0.5**half, low, high)
            found, slope = problem.model.at(tried, STEP)
            if (there := _value(problem, tried, found)) < value:
                break
        else:
            break
        gained, value, x, f, jacobian = value - there, there, tried, found, slope
        if gained < max(ENOUGH, SMALL * value):
            break
    weights = _weights((f - problem.y) / problem.sigma)
    steps = np.minimum(BOTH_WAYS, problem.prior_sigma / 2)
    jacobian = (problem.model.at(x, steps)[1] + problem.model.at(x, -steps)[1]) / 2
    covariance = np.linalg.inv(_normal(problem, jacobian, weights))
    return Fit(problem, x, f, jacobian, weights, covariance)


def without(fitted: Fit, rows: Array) -> tuple[Array, Array]:
    """Residuals of the rows and their variances if these rows had not been there, to first order."""
    kept = np.where(rows, 0.0, fitted.weights)
    inverse = np.linalg.inv(_normal(fitted.problem, fitted.jacobian, kept))
    pull = fitted.jacobian.T @ (kept * fitted.residuals / fitted.problem.sigma**2)
    pull += fitted.problem.precision @ (fitted.x - fitted.problem.prior)
    moved = -inverse @ pull
    there = fitted.jacobian[rows]
    return fitted.residuals[rows] + there @ moved, np.einsum("rp,pq,rq->r", there, inverse, there)


def bootstrap(fitted: Fit) -> Array:
    """Standard deviations of the constants over draws of the rows, to first order."""
    random = np.random.default_rng(SEED)
    rows, problem = len(fitted.f), fitted.problem
    scaled = fitted.jacobian / problem.sigma[:, None]
    residuals = fitted.residuals / problem.sigma
    moved = []
    for _ in range(DRAWS):
        times = np.bincount(random.integers(rows, size=rows), minlength=rows) * fitted.weights
        pull = scaled.T @ (times * residuals) + problem.precision @ (fitted.x - problem.prior)
        moved.append(-np.linalg.solve(scaled.T @ (times[:, None] * scaled) + problem.precision, pull))
    sd: Array = np.std(np.array(moved), axis=0)
    return sd


def _weights(z: Array) -> Array:
    return 1.0 / np.sqrt(1.0 + z**2)


def _value(problem: Problem, x: Array, f: Array) -> float:
    away = x - problem.prior
    return _of_rows(problem, f) + float(away @ problem.precision @ away)


def _normal(problem: Problem, jacobian: Array, weights: Array) -> Array:
    scaled = jacobian / problem.sigma[:, None]
    return scaled.T @ (weights[:, None] * scaled) + problem.precision


def _step(problem: Problem, x: Array, f: Array, jacobian: Array) -> tuple[Array, float]:
    """Gauss and Newton's, and by how much the sum of squares should become less."""
    z = (f - problem.y) / problem.sigma
    weights = _weights(z)
    pull = (jacobian / problem.sigma[:, None]).T @ (weights * z)
    pull += problem.precision @ (x - problem.prior)
    step = -np.linalg.solve(_normal(problem, jacobian, weights), pull)
    return step, float(-pull @ step)


def widened(fitted: Fit, sd: Array) -> Array:
    """Standard deviations where a constant does not matter as much farther away as where it was found.

    A NIC that is just not the slowest part may be much faster. At both ends of the interval of each constant the rows
    are asked by how much they get worse; of what they should, a share is what they know.
    """
    problem = fitted.problem
    known = np.diag(_normal(problem, fitted.jacobian, fitted.weights) - problem.precision)
    before = _of_rows(problem, fitted.f)
    pull = -2 * problem.precision @ (fitted.x - problem.prior)
    share = np.ones(len(sd))
    for sign in (1.0, -1.0):
        steps = sign * FAR * sd
        _, secants = problem.model.at(fitted.x, steps)
        for k, step in enumerate(steps):
            rise = _of_rows(problem, fitted.f + secants[:, k] * step) - before - pull[k] * step
            if known[k] > 0:
                share[k] = min(share[k], max(rise, 0.0) / (step**2 * known[k]))
    told = np.maximum(sd**-2.0 - problem.prior_sigma**-2.0, 0.0)
    wide: Array = (share * told + problem.prior_sigma**-2.0) ** -0.5
    return np.maximum(wide, sd)


def _of_rows(problem: Problem, f: Array) -> float:
    return float(np.sum(2 * (np.sqrt(1 + ((f - problem.y) / problem.sigma) ** 2) - 1)))


def correlated(fitted: Fit, names: Sequence[str]) -> list[tuple[float, str, str]]:
    """Pairs of constants, the most strongly correlated first."""
    correlation = fitted.covariance / np.outer(fitted.sd, fitted.sd)
    pairs = [(float(correlation[i, j]), names[i], names[j]) for i in range(len(names)) for j in range(i)]
    return sorted(pairs, key=lambda pair: -abs(pair[0]))
