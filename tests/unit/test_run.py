"""A run from end to end against a lab without a machine: what it prints, what it keeps, and how it fails."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hardware.client import FabricdError, FabricdSilent
from results import load
from testbed.base.errors import InputError, MachineError
from testbed.base.progress import Progress
from testbed.experiment import Experiment, loads
from testbed.run import run as running
from testbed.run import watch
from testbed.run.outcome import RunFailed, RunResult
from tests.parts.fake_lab import FIDELITY, FakeLab, Script, counters, result_line
from tests.parts.small_run import DONE, EXPERIMENT, whole

WAIT = "time.sleep(60)\n"


class Play:
    """Runs the experiment with workers that follow `script`; `prepare` gets the lab before it is used."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.lab: FakeLab | None = None

    def __call__(
        self,
        script: Callable[[int], Script],
        prepare: Callable[[FakeLab], Any] = lambda lab: None,
        text: str = EXPERIMENT,
        progress: Progress | None = None,
    ) -> RunResult:
        def up(experiment: Experiment) -> Any:
            self.lab = FakeLab(experiment.build_fabric(), self.folder, script)
            prepare(self.lab)
            return self.lab

        try:
            return running.run(loads(text), self.folder / "run", progress, up=up)
        finally:
            assert self.lab is not None
            assert self.lab.downs == 1, "the fabric is taken down once, whatever happened"

    def failing(
        self, script: Callable[[int], Script], prepare: Callable[[FakeLab], Any] = lambda lab: None, **more: Any
    ) -> RunFailed:
        with pytest.raises(RunFailed) as told:
            self(script, prepare, **more)
        failure = told.value
        assert load(failure.folder).state == load(failure.folder).state | {
            "state": "failed",
            "error": failure.to_dict(),
        }
        assert sorted(p.name for p in self.folder.iterdir()) == ["lab", "run.failed"]
        return failure


@pytest.fixture
def play(tmp_path: Path) -> Play:
    return Play(tmp_path)


def emit(*events: dict[str, Any], when: Callable[[FakeLab], bool] = lambda lab: True) -> Callable[[FakeLab], None]:
    """Lets fabricd say `events` once `when` is true."""

    def prepare(lab: FakeLab) -> None:
        def say() -> None:
            deadline = time.monotonic() + 60
            while not when(lab) and time.monotonic() < deadline:
                time.sleep(0.005)
            for event in events:
                lab.fabricd.say(event)

        threading.Thread(target=say, daemon=True).start()

    return prepare


def all_started(lab: FakeLab) -> bool:
    return any(op == "start" for op, _ in lab.fabricd.requests)


def test_what_a_run_prints(play: Play) -> None:
    printed = json.loads(json.dumps(play(whole).to_dict()))
    assert list(printed) == ["run", "clock", "fidelity", "results", "counters", "metrics_sha256"]
    assert printed["run"] == str(play.folder / "run")
    assert (printed["clock"], printed["fidelity"]) == ("virtual", {"verdict": "exact", "reasons": [], "advice": []})
    first, second = printed["results"]
    assert first == {
        "collective": "all_reduce",
        "algorithm": "ring",
        "ranks": 3,
        "size_bytes": 1024,
        "iteration": 0,
        "time_ns": 2001,
        "algbw_Bps": 1024 / 2001e-9,
        "busbw_Bps": pytest.approx(1024 / 2001e-9 * 4 / 3),
        "wrong": 0,
        "fallback": None,
        "host_ns": None,  # these workers do not say
        "sent_bytes": None,
    }
    assert second["time_ns"] == 2000.125
    assert printed["counters"] == {"drops": {}, "ecn_marked": 0, "pause_rx": 0, "retransmitted": 2}
    assert len(printed["metrics_sha256"]) == 64


def test_a_run_ends_as_soon_as_its_workers_do(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    """They close their pipes a moment before they end: the run does not wait for its next look around."""
    monkeypatch.setattr(watch, "TICK_S", 3600.0)
    woken: list[bool] = []

    def prepare(lab: FakeLab) -> None:
        def wake() -> None:
            woken.append(True)
            lab.fabricd.say({"event": "woken"})

        timer = threading.Timer(30.0, wake)
        timer.daemon = True
        timer.start()

    play(lambda rank: whole(rank) + "os.close(1); os.close(2); time.sleep(0.2); os._exit(0)\n", prepare)
    assert not woken


def test_flows_are_printed_by_their_ranks(play: Play) -> None:
    text = EXPERIMENT.replace(
        "{collective: all_reduce, sizes: [1KiB], iterations: 2}", "{flows: [{from: 1, to: 0, size: 10MB}]}"
    )

    def script(rank: int) -> Script:
        say = "say('flow', **{'step': 0, 'flow': 0, 'from': 1, 'to': 0, 'size_bytes': 10**7, 'start_ns': 0.0, "
        return (say + f"'end_ns': {200000.5 - rank}, 'wrong': 0}})\n" if rank < 2 else "") + DONE

    (row,) = play(script, text=text).to_dict()["results"]
    assert list(row) == [
        "flow", "algorithm", "ranks", "size_bytes", "iteration", "time_ns", "algbw_Bps", "busbw_Bps", "wrong",
        "ideal_ns", "slowdown",
    ]  # fmt: skip
    assert (row["flow"], row["algorithm"], row["ranks"], row["iteration"]) == ("1->0", "write", 2, 0)
    assert row["time_ns"] == 199999.5


def test_what_a_run_folder_has(play: Play) -> None:
    result = play(whole, text=EXPERIMENT + "seed: 7\n")
    run = load(result.folder)
    assert loads((result.folder / "experiment.yaml").read_text()) == loads(EXPERIMENT + "seed: 7\n")
    assert run.experiment["fabric"]["nic"]["mtu"] == 4096, "every default is written out"
    assert (run.environment["seed"], run.environment["python"].count(".")) == (7, 2)
    assert run.summary == result.to_dict()
    assert run.fidelity["verdict"] == "exact"
    assert (len(run.results), len(run.ranks), len(run.ports)) == (2, 6, 1)
    assert run.ranks["rank"].tolist() == [0, 1, 2] * 2
    assert (result.folder / "logs" / "fabricd.log").exists()
    report = (result.folder / "report.md").read_text()
    assert "## Fidelity: exact" in report
    assert "| all_reduce | ring" in report


def test_the_clock_starts_when_all_workers_do_and_counters_are_read_when_all_is_quiet(play: Play) -> None:
    play(whole)
    assert play.lab is not None
    assert play.lab.fabricd.requests == [
        ("subscribe", {}),
        ("start", {"ranks": [0, 1, 2]}),
        ("quiesce", {}),
        ("counters", {}),
    ]


def test_captures_are_started_before_the_clock(play: Play) -> None:
    result = play(whole, text=EXPERIMENT + "capture: ['nic:1', 'port:sw0:1', 'cable:h0-sw0']\n")
    assert play.lab is not None
    ops = [op for op, _ in play.lab.fabricd.requests]
    assert ops == ["capture"] * 3 + ["subscribe", "start", "quiesce", "counters"] + ["capture_stop"] * 3
    assert [a["port"] for op, a in play.lab.fabricd.requests if op == "capture"] == ["h1:1", "sw0:1", "h0:1"]
    assert (result.folder / "captures").is_dir()


def test_the_same_measurements_have_the_same_hash(tmp_path: Path) -> None:
    def run(name: str, end: float) -> str:
        (tmp_path / name).mkdir()
        return Play(tmp_path / name)(lambda rank: result_line(rank, end=end) + DONE).metrics_sha256

    assert run("a", 10) == run("b", 10) != run("c", 10.001)


def test_a_worker_that_is_killed_is_named_and_what_was_measured_is_kept(play: Play) -> None:
    def script(rank: int) -> Script:
        return result_line(rank) + ("os.kill(os.getpid(), signal.SIGKILL)" if rank == 1 else WAIT)

    failure = play.failing(script)
    assert "rank 1: the worker was ended by SIGKILL" in failure.what
    assert "rank 1 (NIC h1)" in failure.where
    assert len(load(failure.folder).ranks) == 3


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
        lab.fabricd.answers["waits"] = FabricdSilent("fabricd does not answer: process 7 is stopped")

    failure = play.failing(lambda rank: WAIT, prepare)
    assert failure.what == (
        "fabricd, the emulated hardware, does not answer: process 7 is stopped while the run went on"
    )


def stopped_process() -> subprocess.Popen[bytes]:
    process = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    process.send_signal(signal.SIGSTOP)
    return process


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("controller", "the controller was stopped"),
        ("holder", "the process that holds the hosts' namespaces was stopped"),
    ],
)
def test_a_process_of_the_fabric_that_is_stopped_makes_the_run_doubtful(
    play: Play, name: str, reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    process = stopped_process()

    def prepare(lab: FakeLab) -> None:
        if name == "controller":
            lab.controller.pid = process.pid
        else:
            lab.helpers[name] = process

    def until_seen(rank: int) -> str:
        events = play.folder / "run.partial" / "events.jsonl"
        return f"""
from pathlib import Path
while not Path({str(events)!r}).exists() or '_stopped' not in Path({str(events)!r}).read_text(): time.sleep(0.05)
{whole(rank)}"""

    try:
        result = play(until_seen, prepare)
    finally:
        process.kill()
        process.wait()
    assert result.fidelity.verdict == "doubtful"
    assert reason in result.fidelity.reasons[0]
    assert f"note: {name} (process {process.pid}) is stopped; kill -CONT {process.pid} lets it go on" in (
        capsys.readouterr().err
    )


def test_who_is_waited_for_is_said(play: Play, capsys: pytest.CaptureFixture[str]) -> None:
    waits = [
        {"who": "worker", "rank": 1, "pid": 12, "state": "S", "silent_s": 11.0},
        {"who": "controller", "pid": 13, "events": 2, "state": "T", "silent_s": 2.0},
        {"who": "ovs", "silent_s": 1.0},
    ]

    def prepare(lab: FakeLab) -> None:
        lab.fabricd.answers["waits"] = waits

    play(lambda rank: "time.sleep(0.5)\n" + whole(rank), prepare)
    said = (
        "note: waiting for rank 1 (process 12, asleep), the controller (process 13, stopped), Open vSwitch for 11 s\n"
    )
    assert capsys.readouterr().err.count(said) == 1


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


def test_what_befalls_a_rank_that_is_done_is_no_failure(play: Play) -> None:
    lost = {"event": "worker_lost", "rank": 1, "reason": "", "time_ns": 5.0}

    def others(rank: int) -> Script:
        return whole(rank) if rank == 1 else "time.sleep(0.5)\n" + whole(rank)

    def one_is_done(lab: FakeLab) -> bool:
        return 1 in lab.workers and lab.workers[1].poll() is not None

    def prepare(lab: FakeLab) -> None:
        emit(lost, when=lambda lab: one_is_done(lab) and all_started(lab))(lab)

    assert len(play(others, prepare).results) == 2


def test_fabricd_ending_is_said_with_its_last_words(play: Play) -> None:
    def prepare(lab: FakeLab) -> None:
        lab.fabricd.process.code = -signal.SIGABRT
        lab.fabricd.gone = True
        lab.fabricd.answers["counters"] = FabricdError("gone")

    failure = play.failing(lambda rank: WAIT, prepare)
    assert "fabricd, the emulated hardware, was ended by SIGABRT" in failure.what
    assert "assertion failed" in failure.hint
    assert load(failure.folder).fidelity["verdict"] == "invalid"


def test_the_controllers_death_is_said_and_the_run_goes_on(play: Play, capsys: pytest.CaptureFixture[str]) -> None:
    def prepare(lab: FakeLab) -> None:
        lab.controller.code = -signal.SIGKILL

    result = play(whole, prepare)
    assert result.fidelity.verdict == "exact"
    assert "controller died" in result.fidelity.reasons[0]
    assert "controller died" in capsys.readouterr().err
    assert "controller_died" in load(result.folder).events["event"].tolist()


def test_thresholds_that_are_in_each_others_way_are_said_once(play: Play, capsys: pytest.CaptureFixture[str]) -> None:
    text = EXPERIMENT.replace("nodes: 3}}", "nodes: 3}}, switch: {buffer: 200KB}")
    progress = Progress()
    for _ in range(2):  # as the points of a sweep
        play(whole, text=text, progress=progress)
        play.folder /= "again"
        play.folder.mkdir()
    assert capsys.readouterr().err.count("the buffer has 200 KB: enlarge fabric.switch.buffer") == 1


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


def test_the_real_clock_is_judged_by_its_lateness(play: Play) -> None:
    seen = {**FIDELITY, "clock": "real", "dilation": 1000, "lateness_ns": {"p99": 1e9}}

    def prepare(lab: FakeLab) -> None:
        lab.fabricd.answers["counters"] = counters(fidelity=seen)

    result = play(whole, prepare, text=EXPERIMENT + "clock: {real: {dilation: 1000}}\n")
    assert (result.clock, result.fidelity.verdict) == ("real", "invalid")
    assert play.lab is not None
    assert [op for op, _ in play.lab.fabricd.requests] == ["subscribe", "counters"], (
        "the real clock needs no start and never rests"
    )
