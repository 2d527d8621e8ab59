"""Elements of eight bits: int8, uint8, float8_e4m3fn, float8_e5m2, as inputs, by hosts, switches and NICs."""

from __future__ import annotations

import numpy as np
import pytest

from workloads.base import data
from workloads.base.vocabulary import DTYPES
from workloads.sparse.inputs import SparseInputs

SMALL = [name for name, width in DTYPES.items() if width == 1]


@pytest.mark.parametrize("dtype", SMALL)
@pytest.mark.parametrize("ranks", [2, 3, 12, 40])
def test_sums_are_exact_in_any_order(dtype: str, ranks: int) -> None:
    """No partial sum is rounded or wraps, so that a result is right or wrong to the last bit."""
    for op, combine in (("sum", np.add), ("min", np.minimum), ("max", np.maximum), ("prod", np.multiply)):
        inputs = data.Inputs(5, ranks, dtype, op)
        parts = [inputs.of(i) for i in range(ranks)]
        for order in (range(ranks), reversed(range(ranks)), np.random.default_rng(1).permutation(ranks)):
            first, *rest = order
            total = parts[first].copy()
            for i in rest:
                total = combine(total, parts[i])
            assert data.count_wrong(total, inputs.reduced) == 0, op
        assert len(np.unique(inputs.reduced)) > 1
    exact = sum(part.astype(np.float64) for part in (data.Inputs(5, ranks, dtype, "sum").of(i) for i in range(ranks)))
    averages = data.Inputs(5, ranks, dtype, "avg").reduced
    mean = np.trunc(exact / ranks) if "int" in dtype else (exact / ranks).astype(dtype).astype(np.float64)
    assert (averages.astype(np.float64) == mean).all()
    divided = data.Inputs(5, ranks, dtype, "sum").reduced.copy()
    data.divide(divided, ranks)
    assert (divided == averages).all()


@pytest.mark.parametrize("dtype", SMALL)
def test_sparse_sums_are_exact_too(dtype: str) -> None:
    inputs = SparseInputs(1, 20, dtype, "sum", 16, 0.5, 0.0)
    total = np.zeros(512, dtype)
    for i in range(20):
        part = np.empty(512, dtype)
        inputs.fill(part, i, 3)
        total = total + part
    assert inputs.count_wrong(total, 3) == 0 and total.any()
