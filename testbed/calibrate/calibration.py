"""From logs to a fit of the library's constants, and how far that is to be trusted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from testbed.base.errors import InputError
from testbed.calibrate.fit import FAR, Fit, Problem, bootstrap, fit, too_good, widened, without
from testbed.calibrate.measured import Measured
from testbed.calibrate.prior import prior
from testbed.cluster.model import NAMES, LibraryModel
from testbed.cluster.regions import REGIONS, region
from testbed.logs.row import Log

FEWEST = 8
MOST = 5_000
"""Points: they are fitted in minutes."""
REFUSED = 0.5
WARNED = 0.25
TOLD = 0.8
"""A constant whose posterior is wider than this share of its prior is not told."""
FIRST = 0.06
"""Scatter of a row before anything is known."""
LEAST = 0.01
WIDEST = 0.3
"""Scatter of a region of which nothing is known, at most."""

Array = np.ndarray
Tell = Callable[[str], None]


@dataclass(frozen=True)
class Calibration:
    """`sd`: of the constants' logarithms; `scatter`: by region, of points around the model, as if held out."""

    model: LibraryModel
    points: tuple[Measured, ...]
    fitted: Fit
    sd: Array
    scatter: dict[str, float]
    held: Array
    """log(model / measured) of each point, predicted without all of its collective, nodes and GPUs."""

    @property
    def told(self) -> Array:
        told: Array = self.sd / self.fitted.problem.prior_sigma <= TOLD
        return told

    @property
    def values(self) -> dict[str, float]:
        return dict(zip(NAMES, np.exp(self.fitted.x), strict=True))


def modelled(model: LibraryModel, points: Sequence[Measured], log: Log) -> list[Measured]:
    """Those of which there is a model; the others are counted.  Raises InputError for too many."""
    if len(points) > MOST:
        what = f"{len(points):,} sizes of collectives, nodes and GPUs, more than {MOST:,}"
        raise InputError(what, points[0].rows[0].place, "give fewer logs, or those of a single campaign")
    there, why = model.modelled([one.point for one in points])
    for text in why:
        log.warn("", f"no model of {text}")
    if missing := there.count(False):
        log.left_out["without a model"] += missing
    return [one for one, its in zip(points, there, strict=True) if its]


def left_out(log: Log) -> str:
    """How many rows, and why; empty where none is."""
    counted = ", ".join(f"{n} {why}" for why, n in sorted(log.left_out.items()))
    return counted and f"left out: {counted}"


def calibrate(model: LibraryModel, points: Sequence[Measured], log: Log, tell: Tell = lambda text: None) -> Calibration:
    """Raises InputError for too few points, or for those that no constants fit."""
    if len(points) < FEWEST:
        what = f"{len(points)} points that can be used; a profile takes {FEWEST} at least"
        raise InputError(what, "", left_out(log) or "more sizes, collectives, GPUs of a node")
    tell(f"{len(points)} points, {len(NAMES)} constants")
    spread = np.array([one.spread or 0.0 for one in points])
    y = np.log([one.time_ns for one in points])
    its, known = model.of([one.point for one in points]), prior(model, log)
    first = fit(Problem(its, y, np.hypot(FIRST, spread), known.x, known.sigma, known.correlation))
    regions = [region(one.point.size_bytes) for one in points]
    groups = _groups(points)
    scatter = _scatter(regions, too_good(first) * first.residuals, first.weights)
    fitted = first
    for _ in range(2):  # scatter and fit follow from each other
        sigma = np.maximum(np.array([scatter[name] for name in regions]), np.maximum(spread, LEAST))
        fitted = fit(Problem(its, y, sigma, known.x, known.sigma, known.correlation), fitted)
        scatter = _scatter(regions, too_good(fitted) * fitted.residuals, fitted.weights)
    held, variance = fitted.residuals.copy(), np.zeros(len(points))
    for group in set(groups) if len(set(groups)) > 1 else ():
        rows = np.array([one == group for one in groups])
        held[rows], variance[rows] = without(fitted, rows)
    sd = widened(fitted, np.maximum(fitted.sd, np.minimum(bootstrap(fitted), known.sigma)))
    scatter = _scatter(regions, too_good(fitted) * fitted.residuals, fitted.weights, groups, (held, variance))
    made = Calibration(model, tuple(points), fitted, sd, scatter, held)
    _judge(made, log)
    return made


def _groups(points: Sequence[Measured]) -> list[tuple[Any, ...]]:
    return [tuple(one.point[:3]) for one in points]


T95 = (6.314, 2.920, 2.353, 2.132, 2.015, 1.943, 1.895, 1.860, 1.833, 1.812)
"""Student's, of 1, 2, .. degrees of freedom: 95 % lie below so many standard deviations."""


def _few(count: int) -> float:
    """By how much wider the interval of a scatter is that so many have shown."""
    return T95[min(max(count - 1, 1), len(T95)) - 1] / FAR if count <= len(T95) else 1.0


def _of_lines(groups: Sequence[Any], here: Array, held: Array, variance: Array) -> tuple[float, int]:
    """What lines of points are off beyond what their constants' uncertainty explains, and how many there are."""
    beyond = []
    for group in dict.fromkeys(groups):
        rows = here & np.array([one == group for one in groups])
        if rows.any():
            beyond.append(float(np.median(held[rows] ** 2) - np.median(variance[rows])))
    return max(float(np.mean(beyond)), 0.0) ** 0.5, len(beyond)


def _scatter(
    regions: Sequence[str],
    residuals: Array,
    weights: Array,
    groups: Sequence[Any] = (),
    held: tuple[Array, Array] | None = None,
) -> dict[str, float]:
    """Of each region: of its fitted points, or of the lines of points around the model when held out, if that is more.

    A line (a collective, nodes and GPUs) counts as what it is off in the middle: another collective will be off as one.

    Of one without points half as much again as of the nearest one that has some.
    """
    found: dict[str, float] = {}
    for name in REGIONS:
        here = np.array([one == name for one in regions])
        if here.any():
            its = float(np.sqrt(np.sum(weights[here] * residuals[here] ** 2) / np.sum(weights[here])))
            its *= 1 + 1 / here.sum()  # of few points the mean square is too small
            if held is not None:
                off, lines = _of_lines(groups, here, *held)
                its = float(np.hypot(its, off)) * _few(lines if lines > 1 else int(here.sum()))
            found[name] = max(its, LEAST)
    names = list(REGIONS)
    for k, name in enumerate(names):
        if name not in found:
            nearest = min((abs(k - names.index(other)), other) for other in regions)
            found[name] = min(max(1.5 * found[nearest[1]], 0.05), WIDEST)
    return {name: round(float(found[name]), 4) for name in names}


def _judge(made: Calibration, log: Log) -> None:
    """Raises InputError if this is no model of these points."""
    off = np.abs(made.fitted.residuals)
    typical = float(np.median(off))
    if typical > REFUSED:
        worst = made.points[int(np.argmax(off))]
        what = f"no constants fit these points: half of them are off by {100 * typical:.0f} % or more"
        hint = "are NICs, GPUs and library those that were measured? (--nics, --gpus, --library)"
        raise InputError(what, worst.rows[0].place, hint)
    for name in REGIONS:
        here = [k for k, one in enumerate(made.points) if region(one.point.size_bytes) == name]
        if here and float(np.median(off[here])) > WARNED:
            log.warn("", f"sizes {name}: half of the points are off by {100 * np.median(off[here]):.0f} % or more")
