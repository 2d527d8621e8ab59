"""The page on Python, as a script: runs and sweeps, with the figures of the commands."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from results import Run, Runs
from testbed.experiment.overrides import load_with
from testbed.run.run import run

ROOT = Path(__file__).parents[2]


def test_the_page_on_python_is_a_script(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "python.md").read_text(), re.S)
    (tmp_path / "experiments").symlink_to(ROOT / "experiments")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("results.store.folder.RUNS", tmp_path / "runs")
    monkeypatch.setattr("results.store.load.RUNS", tmp_path / "runs")
    names: dict[str, object] = {}
    exec("\n".join(blocks), names)
    one, points = names["one"], names["points"]
    assert isinstance(one, Run) and isinstance(points, Runs)
    file = load_with(ROOT / "experiments" / "quickstart.yaml", ["workload.0.sizes=[64KiB]"])
    assert one.summary["metrics_sha256"] == run(file, tmp_path / "by-command").metrics_sha256
    assert list(points.figures["fabric.cable.rate"]) == ["100Gbps", "400Gbps"] and not points.failed
    assert "exact" in one._repr_html_() and "busbw_GBps" in points._repr_html_()
