"""Runs on a whole fabric: containers, Open vSwitch, controller, fabricd. What is disturbed is named, none is left."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from results import load
from testbed.experiment import Experiment, loads
from testbed.fabric.lab import Lab
from testbed.run import run as running
from testbed.run.outcome import RunFailed, RunResult
from tests.parts.machine import ROOT, assert_nothing_left

EXPERIMENT = """
name: live
fabric:
  topology: {rail: {servers: 2, gpus: 2, spines: 1}}
workload:
  - {collective: all_reduce, sizes: [64KiB], iterations: 2}
  - {flows: [{from: 3, to: 0, size: 1MB}]}
capture: ["nic:0"]
"""
LONG = EXPERIMENT.replace("iterations: 2", "iterations: 100000")
RANK_3 = b"RAILBED_RANK=3"


class Live:
    """Runs an experiment and checks that the machine is left without a trace of it."""

    def __init__(self, folder: Path) -> None:
        self.out = folder / "run"
        self.lab: Lab | None = None

    def run(self, text: str, disturb: Callable[[Lab], object] | None = None) -> RunResult:
        """`disturb` is called once the first measurement is in."""

        def up(experiment: Experiment) -> Lab:
            self.lab = Lab.up(experiment)
            return self.lab

        watcher = threading.Thread(target=self._disturb, args=(disturb,)) if disturb else None
        if watcher:
            watcher.start()
        try:
            return running.run(loads(text), self.out, up=up)
        finally:
            if watcher:
                watcher.join()
            assert self.lab is not None
            assert_nothing_left(self.lab.id)

    def failing(self, disturb: Callable[[Lab], object]) -> RunFailed:
        """The failure of a long run that is disturbed; it must keep what was measured."""
        with pytest.raises(RunFailed) as told:
            self.run(LONG, disturb)
        assert len(load(told.value.folder).ranks) > 0
        return told.value

    def _disturb(self, disturb: Callable[[Lab], object]) -> None:
        lines = self.out.with_name("run.partial") / "measurements.jsonl"
        deadline = time.monotonic() + 60
        while not (lines.exists() and lines.stat().st_size) and time.monotonic() < deadline:
            time.sleep(0.01)
        assert self.lab is not None
        disturb(self.lab)


def signal_rank_3(lab: Lab, number: signal.Signals) -> None:
    """To the worker itself; its container's init stays."""
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            environment = (folder / "environ").read_bytes().split(b"\0")
            command = (folder / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if RANK_3 in environment and b"workloads.worker" in command and b"python" in command[0] and in_lab(folder, lab):
            os.kill(int(folder.name), number)


def in_lab(process: Path, lab: Lab) -> bool:
    """Whether a process is in a network namespace of this fabric's hosts."""
    own = {os.stat(f"/proc/{holder.pid}/ns/net").st_ino for holder in lab.hosts.values()}
    return os.stat(process / "ns/net").st_ino in own


def delete_flows(lab: Lab) -> None:
    bridge = lab.names.bridge(lab.fabric.switch_by_name["rail1"])
    command, env = lab.ovs_command(["ovs-ofctl", "-O", "OpenFlow13", "del-flows", bridge])
    subprocess.run(command, env=env, check=True)


@pytest.fixture
def live(tmp_path: Path) -> Live:
    return Live(tmp_path)


def test_a_run_measures_captures_and_leaves_nothing(live: Live) -> None:
    result = live.run(EXPERIMENT)
    assert (result.fidelity.verdict, result.fidelity.reasons) == ("exact", [])
    assert [(r["kind"], r["wrong"]) for r in result.results] == [("collective", 0)] * 2 + [("flow", 0)]
    run = load(result.folder)
    assert set(run.qps["path"]) == {"network", "scale_up"}
    assert (run.switches["frames_in"] > 0).sum() == 3
    assert run.drops.empty
    assert (result.folder / "captures" / "h0.0-1.pcapng").stat().st_size > 1_000_000
    assert "programmed" in (result.folder / "logs" / "controller.log").read_text()


def test_a_deleted_flow_is_named_by_switch_port_and_headers(live: Live) -> None:
    failure = live.failing(delete_flows)
    assert "switch rail1 has no flow that forwards frames that came in on port" in failure.what
    assert "10.1.0." in failure.what
    assert "RoCE" in failure.what
    assert load(failure.folder).drops["reason"].unique().tolist() == ["forwarding"]


def test_a_killed_worker_is_named(live: Live) -> None:
    failure = live.failing(lambda lab: signal_rank_3(lab, signal.SIGKILL))
    assert "rank 3: the worker was ended by SIGKILL" in failure.what


def test_a_hung_worker_is_named(live: Live) -> None:
    failure = live.failing(lambda lab: signal_rank_3(lab, signal.SIGSTOP))
    assert "rank 3: the worker hangs" in failure.what


def test_a_stopped_fabricd_is_said(live: Live) -> None:
    failure = live.failing(lambda lab: os.kill(lab.record.processes["fabricd"].pid, signal.SIGSTOP))
    assert "fabricd, the emulated hardware, does not answer: process" in failure.what
    assert "is stopped while the run went on" in failure.what


def test_a_killed_fabricd_is_said(live: Live) -> None:
    failure = live.failing(lambda lab: os.kill(lab.record.processes["fabricd"].pid, signal.SIGKILL))
    assert "fabricd, the emulated hardware, was ended by SIGKILL" in failure.what


def test_a_killed_controller_is_said_and_forwarding_goes_on(live: Live) -> None:
    text = EXPERIMENT.replace("iterations: 2", "iterations: 100")
    result = live.run(text, lambda lab: os.kill(lab.controller.pid, signal.SIGKILL))
    assert result.fidelity.verdict == "exact"
    assert "controller died" in result.fidelity.reasons[0]


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupted_command_leaves_nothing_but_what_was_measured(tmp_path: Path, number: int, code: int) -> None:
    (tmp_path / "long.yaml").write_text(LONG)
    command = [sys.executable, "-m", "testbed", "run", "long.yaml", "--out", "run", "--json"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    before = set(os.listdir("/run/railbed")) if Path("/run/railbed").exists() else set()
    process = subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, text=True)
    lines = tmp_path / "run.partial" / "measurements.jsonl"
    deadline = time.monotonic() + 60
    while not (lines.exists() and lines.stat().st_size) and time.monotonic() < deadline:
        time.sleep(0.01)
    ours = [name for name in set(os.listdir("/run/railbed")) - before if f'"pid": {process.pid},' in _journal(name)]
    process.send_signal(number)
    out, _ = process.communicate(timeout=300)
    assert process.returncode == code
    assert '"what": "the run was interrupted"' in out
    assert len(load(tmp_path / "run.failed").ranks) > 0
    assert len(ours) == 1
    assert_nothing_left(ours[0])


def _journal(name: str) -> str:
    """A fabric's; nothing if it has gone meanwhile, as others' do."""
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        return Path("/run/railbed", name, "journal").read_text()
    return ""


def test_the_real_clock_runs_the_same_workload(live: Live) -> None:
    result = live.run(EXPERIMENT.replace("workload:", "clock: {real: {dilation: 10000}}\nworkload:"))
    assert result.clock == "real"
    assert [r["wrong"] for r in result.results] == [0, 0, 0]
    assert "% of the smallest hop" in result.fidelity.reasons[0]
