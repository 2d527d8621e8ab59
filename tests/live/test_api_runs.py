"""Runs and sweeps from Python: the figures of the commands. (The page's script is run by test_docs.py.)"""

from __future__ import annotations

from pathlib import Path

from railbed import Experiment, run, sweep
from testbed.experiment.overrides import load_with
from testbed.run import run as runs

QUICKSTART = Path(__file__).parents[2] / "experiments" / "quickstart.yaml"


def test_runs_and_sweeps_have_the_figures_of_the_commands(tmp_path: Path) -> None:
    ring = Experiment(QUICKSTART).set({"workload.0.sizes": ["64KiB"]})
    points = sweep(ring.over({"fabric.cable.rate": ["100Gbps", "400Gbps"]}), tmp_path / "sweep", quiet=True)
    assert list(points.figures["fabric.cable.rate"]) == ["100Gbps", "400Gbps"] and not points.failed
    one = run(points.runs[0][1].path / "experiment.yaml", tmp_path / "one", quiet=True)
    file = load_with(QUICKSTART, ["workload.0.sizes=[64KiB]", "fabric.cable.rate=100Gbps"])
    by_command = runs.run(file, tmp_path / "by-command").metrics_sha256
    assert one.summary["metrics_sha256"] == points.runs[0][1].summary["metrics_sha256"] == by_command
    assert "exact" in one._repr_html_() and "busbw_GBps" in points._repr_html_()
