"""Sweeps whose points run several at a time on this machine: the same folder, whatever is interrupted or killed."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

import results
from testbed.experiment import load, loads
from testbed.machines.known import RUN_POINTS
from testbed.machines.processes import Processes
from testbed.machines.sweep import OnMachines
from testbed.run.sweep import SweepEnded, run_sweep
from tests.parts.machine import fabrics_begun_by
from tests.parts.small_sweep import SWEEP, Noted, told


@pytest.fixture
def owners(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Pids of all points' processes, as they begin."""
    began: list[int] = []
    stop = Processes.started

    def started(self: Processes, pid: int) -> None:
        began.append(pid)
        stop(self, pid)

    monkeypatch.setattr(Processes, "started", started)
    return began


def left(owners: list[int]) -> list[str]:
    """Fabrics and processes that are still there."""
    alive = [f"process {pid}" for pid in owners if Path(f"/proc/{pid}").exists()]
    return alive + [fabric for pid in owners for fabric in fabrics_begun_by(pid)]


def test_the_folder_is_the_same_as_one_after_the_other(tmp_path: Path, owners: list[int]) -> None:
    experiment = loads(SWEEP + "sweep: {transport.cc: [none, dcqcn]}\n")
    said = Noted()
    at_once, rows = run_sweep(experiment, tmp_path / "at-once", said, OnMachines(2))
    alone, _ = run_sweep(experiment, tmp_path / "alone", Noted())
    assert told(at_once) == told(alone) and told(at_once)["points"] == rows
    assert [r["run"] for r in rows] == ["point-0", "point-1"]
    assert {p.name for p in at_once.iterdir()} == {p.name for p in alone.iterdir()} | {RUN_POINTS}
    for run in ("point-0", "point-1"):
        assert results.load(at_once / run).experiment == results.load(alone / run).experiment
    assert len(said.ended) == 2 and said.notes == [] and left(owners) == []


def test_after_an_interrupt_it_goes_on_where_it_stopped(tmp_path: Path, owners: list[int]) -> None:
    experiment = loads(SWEEP + "sweep: {seed: [1, 2, 3]}\n")

    class Interrupted(Noted):
        def point_ended(self, text: str) -> None:
            super().point_ended(text)
            raise KeyboardInterrupt

    with pytest.raises(SweepEnded) as ended:
        run_sweep(experiment, tmp_path / "sweep", Interrupted(), OnMachines(2))
    assert ended.value.exit_code == 130 and left(owners) == []
    owners.clear()
    said = Noted()
    folder, rows = run_sweep(experiment, tmp_path / "sweep", said, OnMachines(2))
    assert said.notes == [f"1 of 3 points are done already, in {tmp_path / 'sweep.failed'}"]
    assert len(owners) == 2 and [row["seed"] for row in rows] == [1, 2, 3]
    assert [results.load(folder / row["run"]).environment["seed"] for row in rows] == [1, 2, 3]


def test_one_at_a_time_runs_in_turn_without_processes_and_goes_on_likewise(tmp_path: Path, owners: list[int]) -> None:
    experiment = loads(SWEEP + "sweep: {seed: [1, 2]}\n")
    _, alone = run_sweep(experiment, tmp_path / "alone", Noted())

    class Interrupted(Noted):
        def point_ended(self, text: str) -> None:
            super().point_ended(text)
            raise KeyboardInterrupt

    with pytest.raises(SweepEnded):
        run_sweep(experiment, tmp_path / "sweep", Interrupted(), OnMachines(1))
    said = Noted()
    _, rows = run_sweep(experiment, tmp_path / "sweep", said, OnMachines(1))
    assert rows == alone and owners == [] and len(said.ended) == 1
    assert said.notes == [f"1 of 2 points are done already, in {tmp_path / 'sweep.failed'}"]


def test_a_point_whose_process_is_killed_runs_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, owners: list[int]
) -> None:
    started = Processes.started

    def kill_first(self: Processes, pid: int) -> None:
        started(self, pid)
        if len(owners) == 1:
            os.kill(pid, signal.SIGKILL)

    monkeypatch.setattr(Processes, "started", kill_first)
    said = Noted()
    _, rows = run_sweep(loads(SWEEP + "sweep: {seed: [1]}\n"), tmp_path / "sweep", said, OnMachines(2))
    assert said.notes == ["seed = 1 runs again: its process was killed by signal 9"]
    assert rows[0]["fidelity"] == "exact" and len(owners) == 2 and left(owners) == []


def test_retries_are_for_points_that_failed(tmp_path: Path, owners: list[int]) -> None:
    broken = SWEEP + "inject: [{fault: loss, on: 'cable:h0-sw0', rate: 1.0}]\nsweep: {seed: [1]}\n"
    said = Noted()
    folder, rows = run_sweep(loads(broken), tmp_path / "sweep", said, OnMachines(2, retries=1))
    assert len(owners) == 2 and rows[0]["run"] == "point-0.failed" and (folder / "point-0.failed").is_dir()
    assert said.notes[0].startswith("seed = 1 runs again: ") and "failed: " in said.notes[1] and left(owners) == []


def test_a_point_that_cannot_be_is_that_points_error_alone(tmp_path: Path, owners: list[int]) -> None:
    (tmp_path / "broken.tar").write_text("no archive")
    (tmp_path / "mine.yaml").write_text(SWEEP + "sweep: {workers.image: [null, broken.tar], seed: [1, 2]}\n")
    experiment = load(tmp_path / "mine.yaml")
    at_once, rows = run_sweep(experiment, tmp_path / "at-once", Noted(), OnMachines(2, retries=1))
    _, alone = run_sweep(experiment, tmp_path / "alone", Noted())
    assert rows == alone and ["error" in row for row in rows] == [False, False, True, True]
    assert "cannot unpack the image" in rows[2]["error"] and left(owners) == [] and len(owners) == 4
