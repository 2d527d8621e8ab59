"""`testbed run` and `testbed show` as a person or a program uses them."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from testbed.experiment import loads
from testbed.fabric.lab import Lab
from testbed.live import standing
from tests.parts.command_line import Cli, Outcome
from tests.parts.command_line import testbed as testbed
from tests.parts.doc_examples import ROOT
from tests.parts.fake_lab import FakeLab
from tests.parts.small_run import DONE, EXPERIMENT, whole


def test_run_shows_the_table_and_where_the_run_is(testbed: Cli) -> None:
    done = testbed("run", "small.yaml")
    assert done.code == 0
    assert "all_reduce (ring), 3 ranks, mean of 2 iterations" in done.out
    assert "Fidelity          : exact" in done.out
    (run,) = Path("results/runs").iterdir()
    assert str(run) in done.out
    assert testbed("show", "run", run.name).out.splitlines()[:-1] == done.out.splitlines()[:-1]


def test_run_prints_one_json_object_and_show_prints_it_again(testbed: Cli) -> None:
    done = testbed("run", "small.yaml", "--json", "--out", "here")
    assert (done.code, done.err) == (0, "")
    assert done.data["run"] == str(Path("here").absolute())
    assert len(done.data["results"]) == 2
    assert testbed("show", "run", "here", "--json").data == {**done.data, "run": "here"}


def test_a_failed_run_prints_its_error_as_json(testbed: Cli) -> None:
    done = testbed("run", "small.yaml", "--json", "--out", "here", script=lambda rank: "raise SystemExit(3)")
    assert done.code == 1
    assert set(done.data) == {"error", "run"}
    assert set(done.data["error"]) == {"what", "where", "hint"}
    assert done.data["run"] == str(Path("here.failed").absolute())
    assert testbed("show", "run", "here.failed", "--json").data["error"] == done.data["error"]


def test_a_failed_run_shows_what_was_measured(testbed: Cli) -> None:
    one_of_two = "from_whole = True\n"

    def script(rank: int) -> str:
        return one_of_two + whole(rank).removesuffix(DONE) + "sys.exit('out of luck')"

    done = testbed("run", "small.yaml", "--out", "here", script=script)
    assert done.code == 1
    assert "FAILED" in done.out
    assert "all_reduce (ring), 3 ranks" in done.out
    assert "error: rank" in done.err
    assert "out of luck" in done.err
    assert "here.failed" in done.err


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (("run", "none.yaml"), "no such file"),
        (("run", ""), "the name of the file is empty"),
        (("run", "/dev/null"), "no ordinary file"),
        (("run", "small.yaml", "--out", ""), "the name of the run folder is empty"),
        (("run", "small.yaml", "--set", "fabric.topology.ring.nodes=null"), "ring needs it"),
        (("run", "small.yaml", "--set", "fabric=null"), "key 'fabric' is missing"),
        (("run", "small.yaml", "--out", "small.yaml"), "a file of that name"),
        (("run", "small.yaml", "--out", "/proc/x/y"), "cannot be written"),
        (("run", "small.yaml", "--set", "fabric.nic.mtu=3"), "mtu"),
        (("run", "small.yaml", "--set", "fabric.nik=3"), "no 'nik'"),
        (("run", "small.yaml", "--set", "workload=[]"), "there is nothing to run: the workload is empty"),
        (("run", "small.yaml", "--seed", "many"), "'many' is not a whole number; must be at least 0"),
        (("run", "small.yaml", "--set", "workload.0.sizes=1KiB"), "or lines that begin with a dash"),
        (("run", "small.yaml", "--set", "workload=ring"), "'ring' is not a list"),
        (("run", "small.yaml", "--set", "control=ecmp"), "KEY: VALUE, each in a line of its own"),
        (("run", "small.yaml", "--set", "inject=[{fault: loss, on: all, rate: 1%}]"), "such as 0.01"),
        (("run", "small.yaml", "--set", "inject=[{fault: loss, on: all"), "at character 23 of the value: "),
        (("run", "small.yaml", "--set", "name=&a [*a]"), "an alias that contains itself"),
        (("run", "small.yaml", "--set", f"name={'[' * 1500}"), "nested too deeply"),
        (("run", "small.yaml", "--set", "inject=[{fault: packet_los, on: all, rate: 0.1}]"), "did you mean 'loss'?"),
        (("run", str(ROOT / "README.md")), "an experiment file is wanted here: docs/experiment.md"),
        (("show", "run", "none"), "no such run"),
        (("show", "run", "."), "no run folder"),
        (("show", "topology", "moebius"), "no topology and no file"),
        (("show", "topology", "torus", "dims=1"), "dims"),
        (("show", "topology", "rail", "servers"), "NAME=VALUE"),
        (("show", "topology", "small.yaml", "servers=3"), "parameters go with a kind"),
        (("show", "experiment", "none.yaml"), "no such file"),
    ],
)
def test_bad_input_is_said_without_a_traceback_and_makes_nothing(
    testbed: Cli, args: tuple[str, ...], says: str
) -> None:
    done = testbed(*args)
    assert done.code == 2
    assert says in done.err.replace("\n", " ")
    assert "Traceback" not in done.err
    assert sorted(p.name for p in Path().iterdir()) == ["small.yaml"]
    as_json = testbed(*args, "--json")
    assert as_json.code == 2
    assert says in " ".join(as_json.data["error"][key] for key in ("what", "where", "hint"))


@pytest.mark.parametrize("line", ["run small.yaml", "bench all_reduce -b 1K -e 1K", "run swept.yaml"])
def test_an_ordinary_user_is_told_that_it_takes_root_before_anything_else(
    testbed: Cli, line: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("swept.yaml").write_text(Path("small.yaml").read_text() + "sweep: {seed: [1, 2]}\n")
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    done = testbed(*line.split())
    assert done.code == 3 and done.out == ""
    assert done.err.startswith("error: a fabric needs root: devices, namespaces, containers\n  hint: sudo ")
    assert not Path("results").exists()


def test_topologies_are_shown_and_drawn(testbed: Cli) -> None:
    shown = testbed("show", "topology", "rail", "servers=2", "gpus=2", "--svg", "rail.svg")
    assert (shown.code, shown.out) == (0, "")
    assert Path("rail.svg").read_text().lstrip().startswith("<svg")
    assert "sw0-1" in testbed("show", "topology", "torus", "dims=2,3").out
    assert "sw2" in testbed("show", "topology", "small.yaml").out
    assert len(testbed("show", "topology", "small.yaml", "--json").data["switches"]) == 3


def test_an_experiment_is_shown_with_its_defaults(testbed: Cli) -> None:
    shown = testbed("show", "experiment", "small.yaml")
    assert loads(shown.out) == loads(EXPERIMENT)
    assert "mtu: 4096" in shown.out
    assert testbed("show", "experiment", "small.yaml", "--json").data == loads(EXPERIMENT).resolved()


def test_counters_are_shown(testbed: Cli) -> None:
    testbed("run", "small.yaml", "--out", "here")
    assert "tx_frames" in testbed("show", "counters", "here").out
    assert testbed("show", "counters", "here", "nics", "--json").data[0]["retransmitted"] == 2
    assert "nothing in drops" in testbed("show", "counters", "here", "drops").out


def test_progress_goes_to_a_terminal_only(monkeypatch: pytest.MonkeyPatch) -> None:
    from testbed.base.progress import LineProgress, TerminalProgress, for_stderr

    assert type(for_stderr()) is LineProgress
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    assert type(for_stderr()) is TerminalProgress


def test_in_a_pipe_a_run_that_takes_long_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    from testbed.base.progress import LineProgress

    said = threading.Event()

    class Heard(LineProgress):
        def _print(self, text: str) -> None:
            super()._print(text)
            said.set()

    with Heard(quiet_s=0.01) as progress:
        progress.stage("building the fabric")
        assert said.wait(60)
        progress.measure(12)
        progress.advance("16777216 bytes")
        said.clear()
        assert said.wait(60) and said.clear() is None and said.wait(60)
    told = capsys.readouterr().err.splitlines()
    assert told[0] == "building the fabric" and told[-1] == "1 of 12 measurements, 16777216 bytes"


def test_the_real_clock_says_how_slow_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    from testbed.base.progress import Progress
    from testbed.commands.run import _say_how_slow

    ring = loads(
        "name: s\nclock: {real: {dilation: 100000}}\nfabric: {topology: {star: {hosts: 4}}, cable: {rate: 400Gbps}}\n"
        "workload: [{collective: all_gather, algorithm: ring, sizes: [64MiB], iterations: 3}]\n"
    )
    _say_how_slow(ring, Progress())
    # each NIC sends 3 x 16 MiB, 2 % of it headers: 1.03 ms; three times, 100,000 times slower: 310 s
    told = capsys.readouterr().err
    assert told.startswith("note: the real clock goes 100,000 times slower than the network: ")
    assert told.endswith(" of its time take at least 5.2 min\n")


def test_how_slow_it_is_counts_each_step_of_the_plan_as_often_as_it_is_done(capsys: pytest.CaptureFixture[str]) -> None:
    """A step of the workload may be two of the plan, and what is said of the whole model is not run at all."""
    from testbed.base.progress import Progress
    from testbed.commands.run import _say_how_slow
    from testbed.predict import predict

    model = "{layers: 8, hidden: 256, heads: 4, seq: 64}"
    two = loads(
        "name: s\nclock: {real: {dilation: 100000}}\nfabric: {topology: {star: {hosts: 4}}}\nworkload:\n"
        f"- train: {{model: {model}, gpu: {{flops: 1T}}, parallel: {{data: 4}}, scale: {{layers: [1, 2]}}, "
        "iterations: 2, warmup: 1}\n"
        "- {collective: all_gather, algorithm: ring, sizes: [64MiB], iterations: 5, warmup: 2}\n"
    )
    one, more, _, gathered = (figure.time_ns for figure in predict(two).figures)
    _say_how_slow(two, Progress())
    ms = (3 * one + 3 * more + 7 * gathered) / 1e6
    assert f": {ms:.3g} ms of its time" in capsys.readouterr().err


# --- sweeps ----------------------------------------------------------------

SWEEP = EXPERIMENT + "sweep: {workload.0.iterations: [2, 2], seed: [1, 2]}\n"


def swept(testbed: Cli, text: str = SWEEP, *args: str, script: Any = whole) -> Outcome:
    Path("sweep.yaml").write_text(text)
    done = testbed("run", "sweep.yaml", "--out", "here", *args, script=script)
    assert isinstance(done, Outcome)
    return done


class Nth:
    """A script that plays `other` at the n-th point (from 0), and the whole run at the others."""

    def __init__(self, n: int, other: str) -> None:
        self.calls, self.n, self.other = 0, n, other

    def __call__(self, rank: int) -> str:
        self.calls += 1
        return self.other if (self.calls - 1) // 3 == self.n else whole(rank)


def test_a_sweep_is_shown_again_as_text_json_and_counters(testbed: Cli) -> None:
    done = swept(testbed)
    assert done.code == 0
    assert [line.partition(":")[2] for line in done.err.splitlines()][:2] == [
        " iterations = 2, seed = 1",
        " iterations = 2, seed = 2",
    ]
    assert done.err.splitlines()[-1].startswith("point 4 of 4, ") and " left: " in done.err.splitlines()[-1]
    assert testbed("show", "run", "here").out.splitlines()[:-1] == done.out.splitlines()[:-1]
    shown = testbed("show", "run", "here", "--json").data
    assert (len(shown["points"]), shown["keys"]) == (4, ["workload.0.iterations", "seed"])
    rows = testbed("show", "counters", "here", "nics", "--json").data
    assert [(r["seed"], r["retransmitted"]) for r in rows] == [(1, 2), (2, 2)] * 2
    assert "tx_frames" in testbed("show", "counters", "here").out


def test_a_failed_point_is_said_at_once_and_makes_the_exit_code_1(testbed: Cli) -> None:
    done = swept(testbed, script=Nth(1, "raise SystemExit(3)"))
    assert done.code == 1
    lines = done.err.splitlines()
    failed = next(k for k, line in enumerate(lines) if "failed" in line)
    assert "point 2 of 4 (iterations = 2, seed = 2) failed: rank" in lines[failed]
    assert "point-1.failed" in lines[failed] and lines[failed + 1].startswith("point 3 of 4")
    assert "1 of 4 points" in done.out
    as_json = testbed("show", "run", "here", "--json").data
    assert as_json["error"]["what"] == "1 of 4 points failed"


def test_the_failed_points_of_any_sweep_run_again(testbed: Cli) -> None:
    done = swept(testbed, EXPERIMENT + "sweep: {seed: [1, 2, 3, 4]}\n", script=Nth(2, "raise SystemExit('no luck')"))
    assert done.code == 1 and "1 of 4 points" in done.out
    again = testbed("run", "sweep.yaml", "--failed", "here", "--out", "again", "--json", script=whole)
    assert again.code == 0 and "3 of 4 points are done already, in " in again.err
    assert [point["run"] for point in again.data["points"]] == [f"point-{n}" for n in range(4)]
    before = json.loads(Path("here/sweep.json").read_text())["points"]
    after = again.data["points"]
    assert [after[n] for n in (0, 1, 3)] == [before[n] for n in (0, 1, 3)] and "error" in before[2]
    refused = testbed("run", "small.yaml", "--failed", "here")
    assert refused.code == 2 and "--failed is for the points of a sweep" in refused.err


@pytest.mark.parametrize("when", ["while a point runs", "while its fabric goes down"])
def test_one_interrupt_ends_the_whole_sweep(testbed: Cli, when: str, monkeypatch: pytest.MonkeyPatch) -> None:
    interrupt = "rank or os.kill(os.getppid(), signal.SIGINT); time.sleep(60)"
    if when == "while a point runs":
        done = swept(testbed, SWEEP, "--json", script=Nth(1, interrupt))
    else:
        whole_down = FakeLab.down

        def down(lab: FakeLab) -> None:
            os.kill(os.getpid(), signal.SIGINT)
            whole_down(lab)

        monkeypatch.setattr(FakeLab, "down", down)
        done = swept(testbed, SWEEP, "--json")
    assert done.code == 130
    assert done.data["error"]["what"] == "the sweep was interrupted"
    points = 2 if when == "while a point runs" else 1
    assert len(done.data["points"]) == points
    assert done.data["run"] == str(Path("here.failed").absolute())
    assert json.loads(Path("here.failed/state.json").read_text())["state"] == "failed"
    assert "of 4 points" in testbed("show", "run", "here.failed").out


def test_a_sweep_that_ended_before_its_first_point_says_so(testbed: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    def up(*_: Any, **__: Any) -> Any:
        raise SystemExit(143)

    monkeypatch.setattr(Lab, "up", up)
    monkeypatch.setattr(standing, "shares", lambda _: False)  # a lab that is none takes no guests
    done = swept(testbed)
    assert done.code == 143 and "# no point was done" in done.out and "nothing in sweep" not in done.out


def test_points_of_a_killed_sweep_are_there(testbed: Cli) -> None:
    swept(testbed)
    sweep = Path("here")
    told = json.loads((sweep / "sweep.json").read_text())
    (sweep / "sweep.json").write_text(json.dumps({**told, "points": []}))
    lines = (sweep / "points.jsonl").read_text().splitlines()
    (sweep / "points.jsonl").write_text("\n".join([*lines[:3], lines[3][:20]]))
    assert len(testbed("show", "run", "here", "--json").data["points"]) == 3
    assert "NOT COMPLETE" in testbed("show", "run", "here").out


@pytest.mark.parametrize(
    ("sweep", "place", "says"),
    [
        ("  seed: [1]\n  fabric.topology.ring.node: [4]", "sweep.yaml:8: sweep.fabric.topology.ring.node", "ring has"),
        ("  seed: [1]\n  fabric.cable.rate: [1Gbps,\n    fast]", "sweep.yaml:9: sweep.fabric.cable.rate[1]", "fast"),
        ("  'seed, sed': [1]", "sweep.yaml:7: sweep.seed, sed", "'sed'"),
        ("  sweep: [{}, {seed: [1]}]", "sweep.yaml:7: sweep.sweep", "no sweep within a sweep"),
        (
            "  inject:\n    - []\n    - [{fault: loss, on: 'nic:7'}]",
            "sweep.yaml:9: sweep.inject[1]",
            "rate",
        ),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_sweep_is_said_with_file_and_line(testbed: Cli, sweep: str, place: str, says: str) -> None:
    done = swept(testbed, EXPERIMENT + f"sweep:\n{sweep}\n", "--json")
    assert done.code == 2
    assert done.data["error"]["where"].startswith(place)
    assert says in done.data["error"]["what"]
    assert not Path("here").exists()


def test_a_huge_sweep_begins_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    from testbed.run import sweep as sweeping

    checked = []
    real = sweeping.changed
    monkeypatch.setattr(sweeping, "changed", lambda *args: checked.append(1) or real(*args))
    many = loads(EXPERIMENT + f"sweep: {{seed: {list(range(200))}, workload.0.iterations: {list(range(1, 201))}}}\n")
    assert sweeping.count(many) == 40_000
    sweeping.check(many)
    assert len(checked) == 200 + 199


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (("show", "run", ""), "the name of the run is empty"),
        (("plot", "", "times"), "the name of the run is empty"),
        (("plot", "here"), "what to draw is missing"),
        (("plot", "rate"), "a run is missing"),
        (("inject", "loss", "--on", "all", "--rate", "0.5", "--every", "1ms"), "--every needs --for, shorter than it"),
        (
            ("inject", "loss", "--on", "all", "--rate", "much"),
            "'much' is not a number; must be more than 0 and at most 1",
        ),
        (("inject", "loss", "--on", "all", "--rate", "0.5", "--qp", "x"), "'x' is not a whole number"),
    ],
)
def test_a_slip_on_the_command_line_is_said_in_its_words(testbed: Cli, args: tuple[str, ...], says: str) -> None:
    done = testbed(*args)
    assert (done.code, "Traceback" in done.err) == (2, False)
    assert says in done.err


@pytest.mark.parametrize(
    ("line", "what"),
    [
        (["--on", "local:0", "--set", "sweep={seed: [1]}"], "'local:0' is no place to run on"),
        (["--on", "local:many", "--set", "sweep={seed: [1]}"], "'local:many' is no place to run on"),
        (["--on", "local:2"], "there is no `sweep:`"),
        (["--retries", "2"], "--retries is for points"),
        (["--on", "local:2", "--fabric", "3f2a"], "--on brings one up for each point"),
    ],
)
def test_what_on_cannot_mean_is_bad_input(testbed: Cli, line: list[str], what: str) -> None:
    done = testbed("run", "small.yaml", *line)
    assert done.code == 2 and what in done.err and not Path("results").exists()
