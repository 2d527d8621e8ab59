"""Faults in runs: what they do to workers, that they end when they should, and that such a run repeats itself."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from results import load
from testbed.experiment import loads
from testbed.run import run as running
from testbed.run.outcome import RunFailed, RunResult

EXPERIMENT = """
name: faulty
fabric: {topology: {star: {hosts: 3}}}
workload:
  - {collective: all_reduce, algorithm: ring, sizes: [64KiB], iterations: 6}
"""


def run(*faults: str, workers: str = "") -> RunResult:
    with TemporaryDirectory() as folder:
        text = EXPERIMENT + "inject:\n" + "".join(f"  - {fault}\n" for fault in faults) if faults else EXPERIMENT
        text += f"workers: {{{workers}}}\n"
        return running.run(loads(text), Path(folder) / "run")


def times(result: RunResult) -> Sequence[float]:
    assert [r["wrong"] for r in result.results] == [0] * 6
    assert result.fidelity.verdict == "exact"
    return [r["time_ns"] for r in result.results]


@cache
def untouched() -> RunResult:
    return run()


@pytest.mark.parametrize(
    ("fault", "slower_ns"),
    [
        ('{fault: straggler, on: "nic:1", factor: 3, for: 50us}', 500),
        ('{fault: slow_receiver, on: "nic:1", delay: 20us, for: 50us}', 20_000),
        ('{fault: worker_frozen, on: "nic:1", at: 1us, for: 200us}', 190_000),
    ],
)
def test_a_rank_that_is_slow_for_a_while_makes_all_wait_for_so_long(fault: str, slower_ns: float) -> None:
    was, now = times(untouched()), times(run(fault))
    assert now[0] >= was[0] + slower_ns
    assert now[-1] == was[-1], "the fault was over by then"


def test_late_receives_are_answered_with_rnr_and_sent_again(tmp_path: Path) -> None:
    text = EXPERIMENT + 'inject: [{fault: slow_receiver, on: "nic:1", delay: 20us, for: 50us}]'
    result = running.run(loads(text), tmp_path / "run")
    nics = load(result.folder).nics.set_index("rank")
    assert nics["rnr_nak_retry_err"][0] > 0
    assert nics["rnr_nak_retry_err"][[1, 2]].sum() == 0


@pytest.mark.parametrize("workers", ["", "ranks_per_process: 3"], ids=["alone", "where ranks share processes"])
def test_a_worker_killed_ends_the_run_which_names_it(workers: str) -> None:
    with pytest.raises(RunFailed) as told:
        run('{fault: worker_killed, on: "nic:1", at: 30us}', workers=workers)
    assert "rank 1: the worker was ended by SIGKILL" in told.value.what


def test_a_frozen_rank_of_a_shared_process_makes_the_others_wait_as_one_alone_does() -> None:
    fault = '{fault: worker_frozen, on: "nic:1", at: 1us, for: 200us}'
    assert run(fault, workers="ranks_per_process: 3").metrics_sha256 == run(fault).metrics_sha256


def test_a_worker_frozen_for_good_ends_the_run_which_says_that_it_is_stuck() -> None:
    with pytest.raises(RunFailed) as told:
        run('{fault: worker_frozen, on: "nic:1", at: 30us}')
    assert "the run is stuck" in told.value.what


@pytest.mark.parametrize("fault", ["controller_dead", "controller_hung"])
def test_forwarding_goes_on_without_a_controller(fault: str) -> None:
    result = run(f"{{fault: {fault}, on: controller, at: 20us, for: 30us}}")
    assert times(result) == times(untouched())
    died = any("the controller died" in reason for reason in result.fidelity.reasons)
    assert died == (fault == "controller_dead")


SEVERAL = (
    '{fault: loss, on: all, rate: 0.05}',
    '{fault: burst_loss, on: "nic:2", to_bad: 0.02, to_good: 0.5}',
    '{fault: jitter, on: all, jitter: 3us}',
    '{fault: reordering, on: "nic:0", rate: 0.1}',
    '{fault: duplication, on: "nic:1", rate: 0.1}',
    '{fault: corruption, on: "nic:1", rate: 0.02, at: 10us, for: 1ms, every: 3ms}',
    '{fault: straggler, on: "nic:1", factor: 2}',
    '{fault: slow_receiver, on: "nic:0", delay: 5us, for: 3ms}',
    '{fault: worker_frozen, on: "nic:2", at: 100us, for: 100us}',
    '{fault: missing_entry, on: "switch:sw0", to: 1, at: 10us, for: 20us}',
    '{fault: cable_down, on: "cable:h0-sw0", at: 1ms, for: 100us}',
    '{fault: noisy_neighbour, on: all, load: 0.4, flows: 20, size: 32KiB, distribution: hadoop}',
)  # fmt: skip


def test_a_run_with_faults_is_the_same_each_time() -> None:
    first, second = run(*SEVERAL), run(*SEVERAL)
    assert times(first) == times(second)
    assert first.metrics_sha256 == second.metrics_sha256
    assert first.counters["drops"].keys() >= {"fault", "icrc", "forwarding"}
    assert untouched().metrics_sha256 not in (first.metrics_sha256, second.metrics_sha256)
