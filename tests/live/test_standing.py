"""Points that share a fabric have the figures of points that have one each."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from testbed.base.progress import Progress
from testbed.experiment import loads
from testbed.fabric.lab import Lab
from testbed.live import standing
from testbed.machine.ownership import RUN_DIR
from testbed.run.sweep import run_sweep
from tests.parts.machine import traces

# Losses and marks are drawn at random, by numbers that count what a fabric has seen.
SWEEP = """
name: shared
fabric: {topology: {star: {hosts: 3}}, switch: {ecn: {kmin: 8KB, kmax: 60KB, pmax: 0.5}}}
transport: {cc: dcqcn}
workload:
  - {collective: all_reduce, algorithm: ring, sizes: [64KiB]}
  - {flows: [{from: 1, to: 0, size: 300KB}, {from: 2, to: 0, size: 300KB}]}
inject: [{fault: loss, on: "cable:h0-sw0", rate: 0.01}]
measure: {sample: 10us}
sweep: {transport.cc: [dcqcn, none], workload.0.sizes: [[64KiB], [3KiB], [64KiB]]}
"""


@pytest.fixture
def brought_up(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The fabrics that come up, by id."""
    ids: list[str] = []
    up = Lab.up

    def noted(*arguments: Any, **more: Any) -> Lab:
        lab = up(*arguments, **more)
        ids.append(lab.id)
        return lab

    monkeypatch.setattr(Lab, "up", noted)
    return ids


def test_points_that_share_a_fabric_have_the_figures_of_their_own(
    tmp_path: Path, brought_up: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    experiment = loads(SWEEP)
    folder, shared = run_sweep(experiment, tmp_path / "shared", Progress())
    assert len(brought_up) == 2
    monkeypatch.setattr(standing, "shares", lambda _: False)
    _, own = run_sweep(experiment, tmp_path / "own", Progress())
    assert len(brought_up) == 2 + 6
    assert shared == own and len({row["metrics_sha256"] for row in own}) == 4  # the first and the last size are one
    assert not list(folder.glob("point-*/live.json"))
    assert not any((RUN_DIR / each).exists() or traces(each) for each in brought_up)


def test_a_fabric_of_a_point_that_fails_is_no_other_points(tmp_path: Path, brought_up: list[str]) -> None:
    ring = """
name: circle
fabric: {topology: {ring: {nodes: 4}}, switch: {buffer: 2MB, watchdog: null}}
control: {dateline: false}
workload:
  - flows: [{from: 0, to: 2, size: 4MB}, {from: 1, to: 3, size: 4MB}, {from: 2, to: 0, size: 4MB},
            {from: 3, to: 1, size: 4MB}]
sweep: {workload.0.flows.0.size: [1KB, 4MB, 2KB]}
"""
    _, rows = run_sweep(loads(ring), tmp_path / "sweep", Progress())
    assert [bool("error" in row) for row in rows] == [False, True, False]
    assert len(brought_up) == 2
