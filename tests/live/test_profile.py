"""`testbed run --profile`: stages, processes and fabricd's rooms, beside figures that stay as they are."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from testbed.experiment import loads
from testbed.run.run import run

TEXT = """
name: profiled
fabric: {topology: {star: {hosts: 2}}}
control: {fast_path: {sample: 1024}}
workload:
  - {collective: all_reduce, algorithm: ring, sizes: [64MiB], iterations: 4}  # enough for dozens of samples
"""


def test_a_profile_says_where_time_went_and_changes_no_figure(tmp_path: Path) -> None:
    plain, profiled = (run(loads(TEXT), tmp_path / str(on), profile=on) for on in (False, True))
    assert plain.metrics_sha256 == profiled.metrics_sha256
    assert not (plain.folder / "profile.json").exists()
    found = json.loads((profiled.folder / "profile.json").read_text())
    assert list(found["stages"]) == [
        "planning",
        "bring-up",
        "starting the workers",
        "workload",
        "reading the counters",
        "tear-down",
    ]
    assert all(seconds > 0 for seconds in found["stages"].values())
    assert set(found["busy"]) == {"Open vSwitch", "fabricd", "workers", "controller", "testbed"}
    assert found["busy"]["workers"] > 0 and found["busy"]["fabricd"] > 0
    assert sum(found["fabricd"].values()) == pytest.approx(found["busy"]["fabricd"], abs=1e-2)
    assert {"transport", "worker"} & set(found["fabricd"])
