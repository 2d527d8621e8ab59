"""A run from end to end against a lab without a machine: what it prints, what it keeps, and what it says meanwhile."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from hardware import patience
from results import load
from testbed.base.progress import Progress
from testbed.experiment import loads
from testbed.run import watch
from tests.parts.fake_lab import FIDELITY, FakeLab, Script, counters, result_line
from tests.parts.played_run import Play, all_started, emit
from tests.parts.played_run import play as play
from tests.parts.small_run import DONE, EXPERIMENT, whole


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
    play: Play, name: str, reason: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(patience, "STOPPED_S", 0.3)  # how long it is, a worker that never reaches fabricd shows
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


def test_what_befalls_a_rank_that_is_done_is_no_failure(play: Play) -> None:
    lost = {"event": "worker_lost", "rank": 1, "reason": "", "time_ns": 5.0}

    def others(rank: int) -> Script:
        return whole(rank) if rank == 1 else "time.sleep(0.5)\n" + whole(rank)

    def one_is_done(lab: FakeLab) -> bool:
        return 1 in lab.workers and lab.workers[1].poll() is not None

    def prepare(lab: FakeLab) -> None:
        emit(lost, when=lambda lab: one_is_done(lab) and all_started(lab))(lab)

    assert len(play(others, prepare).results) == 2


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
