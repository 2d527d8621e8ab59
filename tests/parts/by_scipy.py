"""The constants' least squares by SciPy's trust region method, instead of our own steps."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from testbed.calibrate.fit import FARTHEST, Problem

STEP = 1e-5
"""Of a logarithm: slopes where we are, and not over the 4 % by which our own fit takes them."""

Array = NDArray[Any]


def solved(problem: Problem, start: Array) -> tuple[Array, float]:
    """Constants and sum of squares, from a start: rows by soft L1, what was known before as it is."""
    from scipy.optimize import least_squares  # of the dev packages

    root = np.linalg.cholesky(problem.precision).T
    rows = len(problem.y)
    seen: dict[bytes, tuple[Array, Array]] = {}

    def at(x: Array) -> tuple[Array, Array]:
        key = x.tobytes()
        if key not in seen:
            seen[key] = problem.model.at(x, STEP)
        return seen[key]

    def residuals(x: Array) -> Array:
        return np.concatenate([(at(x)[0] - problem.y) / problem.sigma, root @ (x - problem.prior)])

    def slopes(x: Array) -> Array:
        return np.vstack([at(x)[1] / problem.sigma[:, None], root])

    def loss(z: Array) -> Array:
        its = np.vstack([z, np.ones_like(z), np.zeros_like(z)])
        z = z[:rows]
        its[:, :rows] = 2 * (np.sqrt(1 + z) - 1), (1 + z) ** -0.5, -0.5 * (1 + z) ** -1.5
        return its

    away = FARTHEST * problem.prior_sigma
    bounds = problem.prior - away, problem.prior + away
    found = least_squares(residuals, start, slopes, bounds=bounds, loss=loss, x_scale=problem.prior_sigma)
    return found.x, float(2 * found.cost)


def squares(problem: Problem, x: Array) -> float:
    """What both make as small as they can."""
    z = (problem.model.at(x, STEP)[0] - problem.y) / problem.sigma
    away = x - problem.prior
    return float(np.sum(2 * (np.sqrt(1 + z**2) - 1)) + away @ problem.precision @ away)
