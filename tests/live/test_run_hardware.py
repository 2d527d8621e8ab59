"""Runs on the real fabricd with real workers, over a scale-up domain alone: without Open vSwitch and containers."""

from __future__ import annotations

import json
import os
import re
import secrets
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from hardware.client import Fabricd
from hardware.config import Hardware, fabricd_config
from results import load
from results.frames.columns import COLUMNS
from testbed.experiment import Experiment, loads
from testbed.run import run as running
from testbed.run.outcome import RunFailed, RunResult
from tests.parts.fabricd_fixture import plain
from tests.parts.fake_lab import FakeWorker

ROOT = Path(__file__).parents[2]
EXPERIMENT = """
name: pair
fabric:
  topology: {rail: {servers: 1, gpus: 2, spines: 1}}
workload:
  - {collective: all_reduce, sizes: [1KiB, 1MiB], iterations: 2}
  - {collective: ping_pong, sizes: [8B]}
  - {flows: [{from: 1, to: 0, size: 1MB}]}
"""
QUIET = 'echo 1 >/proc/sys/net/ipv6/conf/default/disable_ipv6; exec "$@"'
"""Else the kernel itself would say something on the switch ports."""
LONG = EXPERIMENT.replace("iterations: 2", "iterations: 100000")


class BareLab:
    """fabricd and worker processes, nothing around them."""

    def __init__(self, experiment: Experiment, folder: Path) -> None:
        self.fabric = experiment.build_fabric()
        self.dir = folder
        folder.mkdir()
        config = fabricd_config(
            self.fabric, Hardware(), fabric_id=secrets.token_hex(2), clock={"mode": "virtual"}, seed=experiment.seed
        )
        with (folder / "fabricd.log").open("wb") as log:
            before = ("unshare", "--net", "sh", "-c", QUIET, "-")  # what it leaves goes with it
            self.fabricd = Fabricd.start(config, folder, binary=plain(), log=log, before=before)
        self.hardware = self.fabricd.process
        self.dilation = 1
        self.controller = subprocess.Popen(["sleep", "600"])
        self.helpers: dict[str, Any] = {}
        self.workers: dict[int, FakeWorker] = {}

    def worker_dir(self, rank: int) -> Path:
        return self.dir / "workers" / str(rank)

    def start_worker(
        self, rank: int, argv: Sequence[str], *, stdout: Any, stderr: Any, others: Sequence[int] = ()
    ) -> FakeWorker:
        own = {
            "RAILBED_SOCKET": str(self.worker_dir(rank) / "sock"),
            "RAILBED_SOCKETS": str(self.dir / "workers"),
            "RAILBED_PLAN": str(self.worker_dir(rank) / "plan.json"),
        }
        environment = {**os.environ, "PYTHONPATH": str(ROOT), **own}
        process = FakeWorker(argv, stdout=stdout, stderr=stderr, env=environment)
        self.workers |= dict.fromkeys((rank, *others), process)
        return self.workers[rank]

    def controller_messages(self) -> list[dict[str, Any]]:
        return []

    def counters(self) -> dict[str, Any]:
        return self.fabricd.request("counters")

    def down(self) -> None:
        self.fabricd.stop()
        for process in (*self.workers.values(), self.controller):
            process.kill()
            process.wait()


class Bench:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.lab: BareLab | None = None
        self.runs = 0

    def run(self, text: str, disturb: Callable[[BareLab], None] | None = None) -> RunResult:
        """Runs the experiment; `disturb` is called in a thread when the first measurement is in."""
        self.runs += 1
        out = self.folder / f"run{self.runs}"

        def up(experiment: Experiment) -> Any:
            self.lab = BareLab(experiment, self.folder / f"lab{self.runs}")
            return self.lab

        watcher = threading.Thread(target=self._disturb, args=(out, disturb)) if disturb else None
        if watcher:
            watcher.start()
        try:
            return running.run(loads(text), out, up=up)
        finally:
            if watcher:
                watcher.join()

    def failing(self, disturb: Callable[[BareLab], None]) -> RunFailed:
        with pytest.raises(RunFailed) as told:
            self.run(LONG, disturb)
        return told.value

    def _disturb(self, out: Path, disturb: Callable[[BareLab], None]) -> None:
        """When every rank has measured something, so that there is a row of results."""
        lines = out.with_name(f"{out.name}.partial") / "measurements.jsonl"
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            if lines.exists() and self.lab is not None:
                whole = lines.read_text().split("\n")[:-1]
                if len({json.loads(line)["rank"] for line in whole}) == self.lab.fabric.ranks:
                    break
            time.sleep(0.01)
        assert self.lab is not None
        disturb(self.lab)


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    yield Bench(tmp_path)


def test_a_run_measures_and_checks_every_step(bench: Bench) -> None:
    result = bench.run(EXPERIMENT)
    assert result.fidelity.verdict == "exact"
    kinds = [(r.get("collective") or r["flow"], r["size_bytes"], r["wrong"]) for r in result.results]
    assert kinds == [("all_reduce", 1024, 0)] * 2 + [("all_reduce", 1 << 20, 0)] * 2 + [
        ("ping_pong", 8, 0),
        ("1->0", 10**6, 0),
    ]
    assert all(r["time_ns"] > 0 for r in result.results)
    run = load(result.folder)
    assert set(run.qps["path"]) == {"scale_up"}
    assert run.nics["rank"].tolist() == [0, 1]


def test_every_counter_is_documented(bench: Bench) -> None:
    run = load(bench.run(EXPERIMENT).folder)
    for name, columns in COLUMNS.items():
        assert set(getattr(run, name).columns) == {c.name for c in columns}, name


def test_the_same_experiment_gives_the_same_hash_also_on_a_busy_machine(bench: Bench) -> None:
    first = bench.run(EXPERIMENT).metrics_sha256
    load_on_both = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(2)]
    try:
        assert bench.run(EXPERIMENT).metrics_sha256 == first
    finally:
        for process in load_on_both:
            process.kill()
            process.wait()
    assert bench.run(EXPERIMENT.replace("1KiB", "2KiB")).metrics_sha256 != first


def test_a_killed_worker_ends_the_run_with_its_rank(bench: Bench) -> None:
    failure = bench.failing(lambda lab: lab.workers[1].kill())
    assert "rank 1: the worker was ended by SIGKILL" in failure.what
    assert len(load(failure.folder).results) > 0


def test_a_hung_worker_ends_the_run_with_its_rank(bench: Bench) -> None:
    failure = bench.failing(lambda lab: lab.workers[1].send_signal(signal.SIGSTOP))
    assert "rank 1: the worker hangs" in failure.what


def test_a_killed_fabricd_ends_the_run(bench: Bench) -> None:
    def kill(lab: BareLab) -> None:
        assert lab.fabricd.process is not None
        lab.fabricd.process.kill()

    failure = bench.failing(kill)
    assert "fabricd, the emulated hardware, was ended by SIGKILL while the run went on" in failure.what


def test_a_fabricd_that_the_kernel_has_ended_for_its_memory(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    killed = bench.folder / "vmstat"
    killed.write_text("nr_free_pages 1\noom_kill 3\n")
    monkeypatch.setattr("testbed.machine.memory._VMSTAT", killed)

    def kill(lab: BareLab) -> None:
        assert lab.fabricd.process is not None
        killed.write_text("nr_free_pages 1\noom_kill 4\n")
        lab.fabricd.process.kill()

    failure = bench.failing(kill)
    assert "was ended by SIGKILL, by the kernel, which was short of memory, while the run went on" in failure.what


def test_a_dead_controller_is_said_and_the_run_goes_on(bench: Bench) -> None:
    text = EXPERIMENT.replace("iterations: 2", "iterations: 200")
    result = bench.run(text, lambda lab: lab.controller.kill())
    assert "controller died" in result.fidelity.reasons[0]
    assert result.fidelity.verdict == "exact"


SHARED = EXPERIMENT.replace("gpus: 2", "gpus: 4").replace("  - {collective: ping_pong, sizes: [8B]}\n", "")
SHARED += "workers: {ranks_per_process: 3}\n"
ALONE = SHARED.replace("ranks_per_process: 3", "ranks_per_process: 1")
WITHOUT_END = SHARED.replace("iterations: 2", "iterations: 100000")


def test_ranks_that_share_a_process_have_the_figures_of_a_process_each(bench: Bench) -> None:
    alone = bench.run(ALONE)
    assert bench.lab and len(set(bench.lab.workers.values())) == 4
    shared = bench.run(SHARED)
    assert len(set(bench.lab.workers.values())) == 2
    assert shared.metrics_sha256 == alone.metrics_sha256
    assert (shared.folder / "logs" / "rank2.log").read_text() == ""


def test_a_shared_process_that_is_killed_ends_the_run_with_one_of_its_ranks(bench: Bench) -> None:
    with pytest.raises(RunFailed) as told:
        bench.run(WITHOUT_END, lambda lab: lab.workers[2].kill())
    assert re.match(r"rank [012]: the worker was ended by SIGKILL", told.value.what)
    assert "ranks_per_process" in told.value.hint


def test_a_shared_process_that_hangs_ends_the_run_with_one_of_its_ranks(bench: Bench) -> None:
    with pytest.raises(RunFailed) as told:
        bench.run(WITHOUT_END, lambda lab: lab.workers[2].send_signal(signal.SIGSTOP))
    assert re.match(r"rank [012]: the worker hangs", told.value.what)
