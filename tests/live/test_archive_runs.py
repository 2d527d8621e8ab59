"""An archive done again: the same figures from the file alone, and others where the run was another."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from testbed.base.progress import Progress
from testbed.experiment import load
from testbed.run.archive import archive, verify
from testbed.run.run import run

ROOT = Path(__file__).parents[2]
EXPERIMENT = """
name: own
fabric: {topology: {star: {hosts: 3}}}
transport: {cc: {file: ./mine.c}}
workload: [{flows: [{from: 1, to: 0, size: 256KiB}, {from: 2, to: 0, size: 256KiB}]}]
"""


def test_a_run_comes_to_the_same_figures_from_its_archive_alone(tmp_path: Path) -> None:
    shutil.copy(ROOT / "experiments" / "own" / "theta-powertcp.c", tmp_path / "mine.c")
    (tmp_path / "own.yaml").write_text(EXPERIMENT)
    run(load(tmp_path / "own.yaml"), tmp_path / "own")
    made = archive(tmp_path / "own", tmp_path / "own.zip")
    (tmp_path / "mine.c").unlink()
    found = verify(made, Progress())
    assert found.good and found.exact and [(one.name, one.same) for one in found.runs] == [(".", True)]
    measured = json.loads((tmp_path / "own" / "summary.json").read_text())
    (tmp_path / "own" / "summary.json").write_text(json.dumps({**measured, "metrics_sha256": "0" * 64}))
    (tmp_path / "own" / "metrics" / "results.parquet").unlink()  # what it took by itself is not known either
    other = verify(archive(tmp_path / "own", tmp_path / "other.zip"), Progress())
    assert not other.good and not other.runs[0].same
    assert other.runs[0].differ.keys() == {"slowdown_p50", "slowdown_p99"}
