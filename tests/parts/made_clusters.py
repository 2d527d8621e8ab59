"""Clusters whose constants are known, and the points that they would have measured."""

from __future__ import annotations

from collections.abc import Sequence
from math import exp

import numpy as np

from testbed.calibrate.measured import Measured
from testbed.cluster.hardware import Hardware
from testbed.cluster.model import NAMES, LibraryModel
from testbed.logs.row import Point, Row

HARDWARE = Hardware("hopper", 4, 4, 400e9)
SIZES = [1 << k for k in range(10, 29, 3)]


def points_of(x: np.ndarray, sizes: Sequence[int], noise: float, seed: int) -> list[Measured]:
    """Two nodes, 1 and 4 GPUs of each; `x`: logarithms of the constants, `noise`: of the times."""
    random = np.random.default_rng(seed)
    model = LibraryModel(HARDWARE, {})
    values = dict(zip(NAMES, np.exp(x), strict=True))
    found = []
    for collective in ("all_gather", "all_reduce"):
        for gpus in (1, 4):
            for size in sizes:
                point = Point(collective, 2, gpus, size)
                time = float(model.times(point, values)) * exp(noise * random.standard_normal())
                found.append(Measured(point, time, None, (Row("x", 1, collective, size, time, 2, gpus),)))
    return found
