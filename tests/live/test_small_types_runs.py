"""Elements of eight bits by every algorithm, in a whole run."""

from __future__ import annotations

from pathlib import Path

from testbed.experiment import loads
from testbed.run.run import run
from workloads.base.entry import Algorithm
from workloads.base.vocabulary import ADDER_DTYPES, DTYPES
from workloads.registry import ALGORITHMS

SMALL = [name for name, width in DTYPES.items() if width == 1]


def test_by_every_algorithm(tmp_path: Path) -> None:
    """All-reduces, and one that only moves, of odd sizes; nobody falls back."""

    def steps(entry: Algorithm) -> list[str]:
        ops = [op for op in ("sum", "avg", "max") if op in entry.ops]
        return [
            f"{{collective: {entry.collective.name}, algorithm: {entry.name}, dtype: {d}, op: {op}, "
            "sizes: [1B, 10007B]}"
            for d, op in zip(SMALL, [ops[k % len(ops)] for k in range(len(SMALL))], strict=True)
            if d in entry.dtypes
        ]

    entries = [
        e
        for e in ALGORITHMS.values()
        if e.collective.name == "all_reduce" and not e.on_complexes and e.layout in ("", "ring")
    ]
    workload = [s for entry in entries for s in steps(entry)]
    workload.append("{collective: all_gather, algorithm: multicast, sizes: [999B], dtype: float8_e5m2}")
    lines = "".join(f"  - {s}\n" for s in workload)
    result = run(
        loads(f"name: small\nfabric: {{topology: {{star: {{hosts: 3}}}}}}\nworkload:\n{lines}"), tmp_path / "r"
    )
    assert len(result.results) == 2 * len(SMALL) * len(entries) + 1 and set(SMALL) <= set(ADDER_DTYPES)
    assert [row for row in result.results if row["wrong"] or row["fallback"]] == []
