"""A real sweep over algorithm and topology, compared."""

from __future__ import annotations

from pathlib import Path

from results.pictures.comparison import collect
from results.pictures.comparison_plots import COMPARISONS
from results.pictures.drawing import save


def test_a_real_sweep_over_algorithm_and_topology_is_drawn(tmp_path: Path) -> None:
    from testbed.base.progress import Progress
    from testbed.experiment import loads
    from testbed.run.sweep import run_sweep

    text = """
name: little
fabric: {topology: {star: {hosts: 2}}}
workload: [{collective: ping_pong, sizes: [8B, 64KiB]}]
sweep: {workload.0.algorithm: [write, send], fabric.topology: [{star: {hosts: 2}}, {ring: {nodes: 2}}]}
"""
    folder, rows = run_sweep(loads(text), tmp_path / "sweep", Progress())
    assert len(rows) == 4 and not any("error" in r for r in rows)
    data = collect([folder])
    assert data.dimensions() == ["algorithm", "size_bytes", "fabric.topology"]
    save(COMPARISONS["speedup"].draw(data, "write", None), tmp_path / "speedup.svg")
