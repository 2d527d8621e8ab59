"""How a run fails, against a lab without a machine: who is to blame is named, and what was measured is kept."""

from __future__ import annotations

import os
import signal
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hardware.client import FabricdError, FabricdSilent
from results import load
from testbed.base import this_process
from testbed.base.errors import InputError, MachineError
from testbed.base.progress import Progress
from testbed.experiment import Experiment, loads
from testbed.run import run as running
from testbed.run import watch
from testbed.run.attempt import Attempt
from testbed.run.diagnosis import Symptoms, diagnose
from tests.parts.fake_lab import FakeLab, Script, counters, result_line
from tests.parts.played_run import WAIT, Play, emit
from tests.parts.played_run import play as play
from tests.parts.small_run import DONE, EXPERIMENT, whole
from workloads.base import numpy_core


def test_a_worker_that_is_killed_is_named_and_what_was_measured_is_kept(play: Play) -> None:
    def script(rank: int) -> Script:
        return result_line(rank) + ("os.kill(os.getpid(), signal.SIGKILL)" if rank == 1 else WAIT)

    failure = play.failing(script)
    assert "rank 1: the worker was ended by SIGKILL" in failure.what
    assert "rank 1 (NIC h1)" in failure.where
    assert len(load(failure.folder).ranks) == 3


def test_a_fault_that_kills_or_holds_a_worker_is_named(tmp_path: Path) -> None:
    fabric = loads(EXPERIMENT).build_fabric()
    for how, event, said in (("kill", "worker_lost", "killed it"), ("freeze", "worker_hung", "holds it")):
        act = {"event": "act", "fault": "f1", "on": True, "to": "agent", "spec": {"worker": how, "rank": 1}}
        exits = {1: -signal.SIGKILL} if how == "kill" else {}
        symptoms = Symptoms(events=[act, {"event": event, "rank": 1, "time_ns": 5.0}], exits=exits)
        problem = diagnose(symptoms, fabric, tmp_path)
        assert problem.hint.startswith(f"fault f1 of the experiment {said}; "), problem
        by_itself = diagnose(replace(symptoms, events=symptoms.events[1:]), fabric, tmp_path)
        assert "fault" not in by_itself.hint


def test_a_worker_that_crashes_is_shown_with_its_last_words(play: Play) -> None:
    failure = play.failing(lambda rank: "raise ValueError('numpy went home')" if rank == 2 else WAIT)
    assert "rank 2: the worker ended with exit code 1" in failure.what
    assert "numpy went home" in failure.hint
    assert "numpy went home" in (failure.folder / "logs" / "rank2.log").read_text()


def test_a_worker_that_leaves_early_has_failed(play: Play) -> None:
    failure = play.failing(lambda rank: "print('no JSON')" if rank == 2 else WAIT)
    assert "rank 2" in failure.what
    assert "no JSON" in (failure.folder / "logs" / "rank2.log").read_text()


def test_a_worker_that_hangs_is_named(play: Play) -> None:
    failure = play.failing(lambda rank: WAIT, emit({"event": "worker_hung", "rank": 2, "time_ns": 5.0}))
    assert "rank 2: the worker hangs" in failure.what


def test_a_worker_that_breaks_the_protocol_is_named_with_the_reason(play: Play) -> None:
    lost = {"event": "worker_lost", "rank": 1, "reason": "unknown op 77", "time_ns": 5.0}
    assert "unknown op 77" in play.failing(lambda rank: WAIT, emit(lost)).what


def test_a_missing_flow_is_named_although_a_worker_reports_only_what_it_sees(play: Play) -> None:
    headers = "10.0.0.1 > 10.0.0.3, UDP 4791, RC RDMA WRITE Only"
    drop = {"node": "sw1", "port": 2, "reason": "forwarding", "count": 8, "headers": headers}

    def prepare(lab: FakeLab) -> None:
        lab.fabricd.answers["counters"] = counters(drops=[drop])
        emit(
            {"event": "forwarding_drop", "switch": "sw1", "port": 2, "headers": headers, "time_ns": 5.0},
            {"event": "qp_error", "rank": 0, "qp": 1, "peer": 2, "status": 12, "time_ns": 900000.0},
        )(lab)

    error = "say('error', what='transport retries exceeded', status=12, peer=2)\nsys.exit(1)"
    failure = play.failing(lambda rank: error if rank == 0 else WAIT, prepare)
    assert "switch sw1 has no flow" in failure.what
    assert headers in failure.what
    assert "port 2" in failure.where
    assert load(failure.folder).drops["headers"].tolist() == [headers]
    assert "forwarding_drop" in load(failure.folder).events["event"].tolist()


def test_frames_that_keep_finding_no_flow_end_the_run_before_a_queue_pair_gives_up(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "LOSSY_S", 0.2)
    count = iter(range(8, 10_000))

    def prepare(lab: FakeLab) -> None:
        def counted() -> dict[str, Any]:
            drop = {"node": "sw1", "port": 2, "reason": "forwarding", "count": next(count), "headers": "RoCE"}
            return counters(drops=[drop])

        lab.fabricd.answers["counters"] = counted
        emit({"event": "forwarding_drop", "switch": "sw1", "port": 2, "headers": "RoCE", "time_ns": 5.0})(lab)

    real = EXPERIMENT + "clock: {real: {dilation: 10}}\n"
    assert "switch sw1 has no flow" in play.failing(lambda rank: WAIT, prepare, text=real).what


def test_open_vswitch_that_is_lost_is_named_and_not_fabricd(play: Play) -> None:
    def prepare(lab: FakeLab) -> None:
        emit({"event": "ovs_lost", "reason": "Open vSwitch returns no fence", "time_ns": 5.0})(lab)

    failure = play.failing(lambda rank: WAIT, prepare)
    assert failure.what == "Open vSwitch returns no fence while the run went on"
    assert failure.where == "Open vSwitch"


def test_a_worker_that_never_reaches_fabricd_is_named_with_what_it_is_judged_by(play: Play) -> None:
    def prepare(lab: FakeLab) -> None:
        lab.fabricd.answers["waits"] = [{"who": "absent", "rank": 2}]

    stopped = "os.kill(os.getpid(), signal.SIGSTOP)"
    failure = play.failing(lambda rank: stopped if rank == 2 else WAIT, prepare)
    assert failure.what.startswith("rank 2 did not start: fabricd heard nothing from the worker (process ")
    assert failure.what.endswith(" is stopped)")


def test_a_fabricd_that_says_nothing_is_named_with_what_it_is_judged_by(play: Play) -> None:
    def prepare(lab: FakeLab) -> None:
        lab.fabricd.answers["waits"] = FabricdSilent("does not answer: process 7 is stopped")

    failure = play.failing(lambda rank: WAIT, prepare)
    assert failure.what == (
        "fabricd, the emulated hardware, does not answer: process 7 is stopped while the run went on"
    )


def test_one_frame_without_a_flow_is_enough_when_the_next_one_would_take_long(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "LOSSY_S", 0.2)

    def prepare(lab: FakeLab) -> None:
        drop = {"node": "sw1", "port": 2, "reason": "forwarding", "count": 1, "headers": "RoCE"}
        lab.fabricd.answers["counters"] = counters(drops=[drop])
        emit({"event": "forwarding_drop", "switch": "sw1", "port": 2, "headers": "RoCE", "time_ns": 5.0})(lab)

    real = EXPERIMENT + "clock: {real: {dilation: 100000}}\n"
    assert "switch sw1 has no flow" in play.failing(lambda rank: WAIT, prepare, text=real).what


def test_a_queue_pair_that_gave_up_is_named_with_where_the_frames_were_lost(play: Play) -> None:
    def prepare(lab: FakeLab) -> None:
        drop = {"node": "sw0", "port": 3, "reason": "cable", "count": 40, "headers": "h"}
        lab.fabricd.answers["counters"] = counters(drops=[drop])
        emit({"event": "qp_error", "rank": 0, "qp": 1, "peer": 2, "status": 12, "time_ns": 9.0})(lab)

    failure = play.failing(lambda rank: WAIT, prepare)
    assert "queue pair to rank 2 gave up: transport retries exceeded" in failure.what
    assert "sw0 port 3 (cable, 40)" in failure.hint


def test_a_stuck_run_says_who_waits_for_what(play: Play) -> None:
    waiting = [{"rank": 0, "waits_for": "1 record"}, {"rank": 2, "waits_for": "sync 5"}]
    failure = play.failing(lambda rank: WAIT, emit({"event": "stalled", "waiting": waiting, "time_ns": 9.0}))
    assert "rank 0 waits for 1 record; rank 2 waits for sync 5" in failure.what


def test_fabricd_ending_is_said_with_its_last_words(play: Play) -> None:
    def prepare(lab: FakeLab) -> None:
        lab.fabricd.process.code = -signal.SIGABRT
        lab.fabricd.gone = True
        lab.fabricd.answers["counters"] = FabricdError("gone")

    failure = play.failing(lambda rank: WAIT, prepare)
    assert "fabricd, the emulated hardware, was ended by SIGABRT" in failure.what
    assert "assertion failed" in failure.hint
    assert load(failure.folder).fidelity["verdict"] == "invalid"


def test_a_request_that_fails_fails_the_run(play: Play) -> None:
    def prepare(lab: FakeLab) -> None:
        lab.fabricd.answers["start"] = MachineError("fabricd refused: no such rank")

    assert "no such rank" in play.failing(lambda rank: WAIT, prepare).what


def test_wrong_results_fail_the_run_but_are_kept(play: Play) -> None:
    def script(rank: int) -> Script:
        return result_line(rank).replace('"wrong": 0', f'"wrong": {rank}') + DONE

    text = EXPERIMENT.replace("iterations: 2", "iterations: 1")
    failure = play.failing(script, text=text)
    assert "3 elements are wrong, in 1 of 1 operations" in failure.what
    assert load(failure.folder).results["wrong"].tolist() == [3]


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupted_run_keeps_what_it_has(play: Play, number: signal.Signals, code: int) -> None:
    class Interrupting(Progress):
        def advance(self, text: str) -> None:
            os.kill(os.getpid(), number)

    def stop(signum: int, _frame: object) -> None:  # as testbed.cli does
        raise SystemExit(128 + signum)

    before = signal.signal(signal.SIGTERM, stop)
    try:
        failure = play.failing(lambda rank: result_line(rank) + WAIT, progress=Interrupting())
    finally:
        signal.signal(signal.SIGTERM, before)
    assert "interrupted" in failure.what
    assert failure.exit_code == code
    assert load(failure.folder).fidelity["reasons"] == ["interrupted: no counters"]
    assert len(load(failure.folder).ranks) >= 1


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_while_the_fabric_goes_down_waits_for_what_is_written_beside_that(
    play: Play, monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    wrote: list[str] = []
    write, joined = Attempt.write_frames, threading.Event()

    def writing(attempt: Attempt) -> None:
        assert joined.wait(60)
        wrote.append(threading.current_thread().name)
        write(attempt)

    class Waited(threading.Thread):
        def join(self, timeout: float | None = None) -> None:
            if self.name == "frames":
                os.kill(os.getpid(), number)
                joined.set()
            super().join(timeout)

    def stop(signum: int, _frame: object) -> None:  # as testbed.cli does
        joined.set()
        raise SystemExit(128 + signum)

    monkeypatch.setattr(threading, "Thread", Waited)
    monkeypatch.setattr(Attempt, "write_frames", writing)
    before = signal.signal(number, stop)
    try:
        result = play(whole)
    finally:
        assert signal.signal(number, before) is stop
    assert (result.stopped, wrote) == (128 + number, ["frames"])
    assert load(result.folder).state["state"] == "complete"


def test_imports_beside_the_fabrics_end_may_fail(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[object] = []
    monkeypatch.setattr(threading, "excepthook", told.append)

    def imports() -> None:
        raise ImportError("no pandas")

    play(whole, meanwhile=imports)
    assert not told


@pytest.mark.parametrize("ours", [False, True])
def test_numpys_core_alone_is_imported_in_the_commands_own_process(
    play: Play, monkeypatch: pytest.MonkeyPatch, ours: bool
) -> None:
    imported: list[bool] = []
    monkeypatch.setattr(this_process, "ours", ours)
    monkeypatch.setattr(numpy_core, "import_core", lambda: imported.append(True))
    play(whole)
    assert bool(imported) == ours


def test_a_folder_that_cannot_be_written_is_found_before_anything_is_made() -> None:
    def up(_experiment: Experiment) -> Any:
        raise AssertionError("the fabric was brought up")

    with pytest.raises(InputError) as told:
        running.run(loads(EXPERIMENT), "/dev/null/run", up=up)
    assert told.value.exit_code == 2


def test_a_fabric_that_does_not_come_up_leaves_no_run_folder(tmp_path: Path) -> None:
    def up(_experiment: Experiment) -> Any:
        raise MachineError("Open vSwitch is not installed")

    with pytest.raises(MachineError):
        running.run(loads(EXPERIMENT), tmp_path / "deep" / "run", up=up)
    assert list(tmp_path.iterdir()) == []
