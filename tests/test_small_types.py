"""Elements of eight bits: int8, uint8, float8_e4m3fn, float8_e5m2, as inputs, by hosts, switches and NICs."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import numpy as np
import pytest

from testbed.run import run
from testbed.spec import loads
from workloads import data
from workloads.registry import ADDER_DTYPES, COLLECTIVES, DTYPES, Collective
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


@pytest.mark.skipif(
    os.geteuid() != 0 or not shutil.which("runc") or not shutil.which("ovs-vsctl"),
    reason="needs root, runc and Open vSwitch",
)
def test_by_every_algorithm(tmp_path: Path) -> None:
    """All-reduces, and one that only moves, of odd sizes; nobody falls back."""

    def steps(entry: Collective) -> list[str]:
        ops = [op for op in ("sum", "avg", "max") if op in entry.ops]
        return [
            f"{{collective: {entry.name}, algorithm: {entry.algorithm}, sizes: [1B, 10007B], dtype: {d}, op: {op}}}"
            for d, op in zip(SMALL, [ops[k % len(ops)] for k in range(len(SMALL))], strict=True)
            if d in entry.dtypes
        ]

    entries = [
        e for e in COLLECTIVES.values() if e.name == "all_reduce" and not e.on_complexes and e.layout in ("", "ring")
    ]
    workload = [s for entry in entries for s in steps(entry)]
    workload.append("{collective: all_gather, algorithm: multicast, sizes: [999B], dtype: float8_e5m2}")
    lines = "".join(f"  - {s}\n" for s in workload)
    result = run(
        loads(f"name: small\nfabric: {{topology: {{star: {{hosts: 3}}}}}}\nworkload:\n{lines}"), tmp_path / "r"
    )
    assert len(result.results) == 2 * len(SMALL) * len(entries) + 1 and set(SMALL) <= set(ADDER_DTYPES)
    assert [row for row in result.results if row["wrong"] or row["fallback"]] == []
