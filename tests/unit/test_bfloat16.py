"""Sums of bfloat16, in C and by numpy, against those of ml_dtypes; results compared by their bits first."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from hardware.build import ELEMENTS, ELEMENTS_SOURCES, build
from workloads.base import bfloat16, data, native

pytestmark = pytest.mark.filterwarnings("ignore:.*encountered in add:RuntimeWarning")


def drawn(seed: int, count: int) -> np.ndarray:
    """Any bits: numbers of all sizes, infinite ones, and those that are none."""
    return np.random.default_rng(seed).integers(0, 1 << 16, count).astype(np.uint16).view(ml_dtypes.bfloat16)


@pytest.fixture(params=["in C", "by numpy"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the library, and as if it were not there."""
    build(ELEMENTS, sources=ELEMENTS_SOURCES)
    native._library.cache_clear()
    if request.param == "by numpy":
        monkeypatch.setattr(native, "_library", lambda: None)
    else:
        assert native._library() is not None


@pytest.mark.parametrize("count", [1, 2, 3, 1000, 40001, 2 * 16384, 2 * 16384 + 2])
@pytest.mark.parametrize("shift", [0, 1, 2])
def test_sums_are_those_of_ml_dtypes(way: None, count: int, shift: int) -> None:
    """To the last bit, wherever they lie; what is no number stays none."""
    ours, theirs = drawn(1, count + shift)[shift:], drawn(2, count + shift)[shift:]
    want = ours + theirs
    bfloat16.add(ours, theirs)
    none = np.isnan(want)
    assert (np.isnan(ours) == none).all()
    assert (ours.view(np.uint16)[~none] == want.view(np.uint16)[~none]).all()


def test_ties_are_rounded_to_even(way: None) -> None:
    ours, theirs = np.array([256, 258, 256, -256], ml_dtypes.bfloat16), np.array([1, 1, 3, -1], ml_dtypes.bfloat16)
    bfloat16.add(ours, theirs)
    assert ours.astype(int).tolist() == [256, 260, 260, -256]


def test_exact_sums_are_not_rounded(way: None) -> None:
    """Sums of inputs, which are what every collective adds up."""
    inputs = data.Inputs(3, 8, "bfloat16", "sum")
    total = inputs.of(0).copy()
    for index in range(1, 8):
        bfloat16.add(total, inputs.of(index).copy())
    assert data.count_wrong(total, inputs.reduced) == 0


@pytest.mark.parametrize("dtype", ["bfloat16", "float32", "int8"])
def test_every_wrong_element_is_counted(way: None, dtype: str) -> None:
    inputs = data.Inputs(3, 4, dtype, "sum")
    result = np.empty(40 * data.PERIOD + 7, inputs.dtype)
    data.fill(result, inputs.reduced, 5)
    assert data.count_wrong(result, inputs.reduced, 5) == 0
    for at in (0, data.PERIOD, 20 * data.PERIOD + 1, len(result) - 1):
        result[at] += 1
    assert data.count_wrong(result, inputs.reduced, 5) == 4


def test_zeros_are_alike_and_what_is_no_number_is_wrong(way: None) -> None:
    period = np.zeros(data.PERIOD, ml_dtypes.bfloat16)
    result = period.copy()
    result[3], result[4] = -0.0, np.nan
    assert data.count_wrong(result, period) == 1


def test_vectors_of_different_lengths_are_refused(way: None) -> None:
    with pytest.raises(ValueError, match="not alike"):
        bfloat16.add(drawn(1, 8), drawn(2, 7))
