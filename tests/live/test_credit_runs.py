"""Credit where packets overtake each other: all of it comes, and no figure depends on the fast path."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from testbed.experiment import loads
from testbed.experiment.overrides import override
from testbed.run.run import run

STUDY = """
name: overtaking
fabric: {topology: {clos: {leaves: 2, spines: 4, hosts_per_leaf: 4}}, switch: {pfc: false}, nic: {pfc: false}}
transport: {cc: CONTROL, recovery: selective_repeat, ordering: any, sack: {}, loss: {}}
workload:
  - load: {pattern: burst, to: 0, size: 512KiB, flows: 1}
"""
PATHS = {"sprayed": "transport.multipath={policy: reps}", "adaptive": "control.routing=adaptive"}


@pytest.mark.parametrize(("control", "paths"), [("rccc", "sprayed"), ("homa", "adaptive")])
def test_credit_goes_with_many_paths(control: str, paths: str, tmp_path: Path) -> None:
    ways: list[Any] = []
    for way in ("off", "{sample: 64}"):
        keys = [PATHS[paths], f"control.fast_path={way}"]
        ways.append(run(override(loads(STUDY.replace("CONTROL", control)), keys), tmp_path / way))
    slow, fast = ways
    assert slow.metrics_sha256 == fast.metrics_sha256 and fast.fidelity.verdict == "exact"
    last = max(row["start_ns"] + row["time_ns"] for row in fast.results)
    assert len(fast.results) == 7 and last < 1.15 * 7 * (1 << 19) * 8 / 400
