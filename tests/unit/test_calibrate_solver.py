"""Our fit of constants against SciPy's, on the same problems: the same sum of squares, the same constants."""

from __future__ import annotations

import numpy as np
import pytest

from testbed.calibrate.calibration import Calibration, calibrate
from testbed.calibrate.prior import prior
from testbed.calibrate.work import Asked, work
from testbed.cluster.model import LibraryModel
from testbed.logs.row import Log
from tests.parts.by_scipy import solved, squares
from tests.parts.made_clusters import HARDWARE, SIZES, points_of
from tests.parts.measured_clusters import GB10

pytest.importorskip("scipy", reason="needs the Python package scipy (requirements-dev.lock has it)")


def agree(made: Calibration) -> None:
    """SciPy finds nothing that is better, wherever it begins, and stays where ours has ended."""
    problem, x = made.fitted.problem, made.fitted.x
    ours = squares(problem, x)
    _, best = solved(problem, problem.prior)
    assert ours < best + 0.75
    near, best = solved(problem, x)
    assert ours < best + 0.75
    assert np.max(np.abs(near - x) / made.sd) < 0.3


@pytest.mark.parametrize("seed", [2, 4])
def test_constants_of_made_clusters(seed: int) -> None:
    model = LibraryModel(HARDWARE, {})
    known = prior(model)
    drawn = np.linalg.cholesky(known.correlation) @ np.random.default_rng(seed).standard_normal(len(known.x))
    truth = known.x + known.sigma * drawn.clip(-2, 2)
    agree(calibrate(model, points_of(truth, SIZES, 0.02, seed), Log()))


def test_constants_of_a_measured_cluster() -> None:
    agree(work(Asked([GB10.log], GB10.told)).made)
