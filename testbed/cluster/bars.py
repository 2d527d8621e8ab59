"""How far a prediction by a profile may be off, and where it goes beyond what was measured.

The uncertainty of the constants, the scatter of measured times around the model at that size, and a share for each
doubling beyond what was measured. Nobody has measured that share: it is what a prudent person would add.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import exp, log2, sqrt

import numpy as np

from testbed.base.units import format_size
from testbed.cluster.model import NAMES, LibraryModel
from testbed.cluster.profile import Z90, Profile
from testbed.cluster.regions import region
from testbed.logs.row import Point
from workloads.library.choice import Choice

PER_DOUBLING = {"nodes": 0.04, "GPUs of a node": 0.04, "larger": 0.01, "smaller": 0.06}
OTHER_COLLECTIVE = 0.05


@dataclass(frozen=True)
class Bar:
    """`sd`: of the time's logarithm; `beyond`: where it is not measured, in words."""

    sd: float
    beyond: tuple[str, ...]

    @property
    def percent(self) -> float:
        """Half of the interval that holds the time with 90 %."""
        return 100 * (exp(Z90 * self.sd) - 1)


class Bars:
    """Of a profile."""

    def __init__(self, profile: Profile, model: LibraryModel) -> None:
        self.profile, self.model = profile, model
        names, covariance = profile.covariance()
        order = [names.index(name) if name in names else -1 for name in NAMES]
        self._covariance = np.array([[covariance[i, j] if min(i, j) >= 0 else 0.0 for j in order] for i in order])
        values = profile.values()
        self.x = np.log([values.get(name, prior) for name, prior in self.model.priors().items()])

    def at(self, point: Point, choice: Choice | None = None) -> Bar:
        """Of what the tuner takes, or of a choice.  Raises NoModel, NoChoice."""
        beyond = dict(self._beyond(point))
        scatter = self.profile.scatter[region(point.size_bytes)]
        return Bar(
            sqrt(
                self._of_constants(point, choice or self.model.choice(point))
                + scatter**2
                + sum(share**2 for share in beyond.values())
            ),
            tuple(beyond),
        )

    def _of_constants(self, point: Point, choice: Choice) -> float:
        """The variance that the constants' uncertainty makes.

        Along each axis of their distribution the time is asked for at both ends of the interval, and the farther one
        counts: a hop that is not told may be long, and then it is all that matters.
        """
        needed = self.model.needs(point, choice)
        values, axes = np.linalg.eigh(self._covariance[np.ix_(needed, needed)])
        ends = Z90 * axes * np.sqrt(np.clip(values, 0.0, None))
        tries = np.repeat(self.x[:, None], 2 * len(needed) + 1, axis=1)
        tries[needed, 1:] += np.column_stack([ends, -ends])
        times = np.log(self.model.times(point, dict(zip(NAMES, np.exp(tries), strict=True)), choice))
        away = np.abs(times[1:] - times[0]).reshape(2, len(needed))
        return float(np.sum((np.max(away, axis=0) / Z90) ** 2))

    def _beyond(self, point: Point) -> list[tuple[str, float]]:
        its = self.profile.range
        found = []
        for name, value, (low, high) in (("nodes", point.nodes, its.nodes), ("GPUs of a node", point.gpus, its.gpus)):
            if value > high:
                found.append((f"{name} {value} > {high}", PER_DOUBLING[name] * log2(value / high)))
            elif value < low:
                found.append((f"{name} {value} < {low}", PER_DOUBLING[name] * log2(low / value)))
        (low, high), size = its.sizes, point.size_bytes
        if size > high:
            text = f"size {format_size(size)} > {format_size(high)}"
            found.append((text, PER_DOUBLING["larger"] * log2(size / high)))
        elif size < low:
            text = f"size {format_size(size)} < {format_size(low)}"
            found.append((text, PER_DOUBLING["smaller"] * log2(low / size)))
        if point.collective not in its.collectives:
            found.append((f"collective {point.collective}", OTHER_COLLECTIVE))
        return found
