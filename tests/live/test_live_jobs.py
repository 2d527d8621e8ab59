"""Workloads on a fabric that is up: the figures of a plain run, as often as one likes, and nothing left behind."""

from __future__ import annotations

import errno
import json
import re
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from results import load
from results.compare.comparison import compare
from testbed.base.errors import InputError, UserError
from testbed.base.progress import Progress
from testbed.fabric.lab import Lab
from testbed.live import jobs
from testbed.machine import ownership
from testbed.machine.teardown import control_group_paths
from testbed.run.attempt import Attempt
from testbed.run.job import run_on
from testbed.run.job import start as background
from tests.parts.machine import ROOT, TESTBED, cli, fabric_ids, told, traces, wait_until

# Random draws (loss, marks), offloads with slots and trees of the controller's, a cut that it routes around, samples.
FABRIC = """
fabric:
  topology: {clos: {leaves: 2, spines: 2, hosts_per_leaf: 2}}
  switch: {accelerator: {}}
control: {reaction: 20us}
transport: {cc: dcqcn}
"""
JOB = """
name: job
workload:
  - {collective: all_reduce, algorithm: in_network, sizes: [64KiB], iterations: 2}
  - {flows: [{from: 3, to: 0, size: 1MB}, {from: 2, to: 0, size: 1MB, start: 1us}]}
inject:
  - {fault: loss, on: "cable:h0-leaf0", rate: 0.02, at: 30us, for: 2ms}
  - {fault: cable_down, on: "cable:leaf0-spine0", at: 30us, for: 60us}
measure: {sample: 1us}
"""
ENDLESS = "name: endless\nworkload: [{collective: all_reduce, sizes: [4KiB], iterations: 1000000}]\n"


def up(text: str, folder: Path, *more: str) -> str:
    file = folder / "up.yaml"
    file.write_text(text)
    return str(json.loads(told("up", str(file), "--json", *more))["id"])


def gone(fabric_id: str) -> None:
    if fabric_id in fabric_ids():
        told("clean", fabric_id, "--force")
    assert traces(fabric_id) == []


@pytest.fixture(scope="module")
def virtual(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    fabric_id = up(f"name: live\n{FABRIC}", tmp_path_factory.mktemp("up"), "--virtual")
    yield fabric_id
    gone(fabric_id)


@pytest.fixture
def run(virtual: str, tmp_path: Path) -> Callable[..., dict[str, Any]]:
    """Runs a text on the live fabric; returns what `--json` prints."""

    def do(text: str, *settings: str) -> dict[str, Any]:
        (tmp_path / "job.yaml").write_text(text)
        out = tmp_path / f"run{len(list(tmp_path.iterdir()))}"
        return run_on(virtual, tmp_path / "job.yaml", settings, out, Progress()).to_dict()

    return do


def left_on(fabric_id: str) -> list[str]:
    """What a job has brought to a fabric."""
    directory = ownership.RUN_DIR / fabric_id
    found = [str(p) for p in (*directory.glob("containers/*-j*"), *directory.glob("runc/*-j*"))]
    for group in control_group_paths(ownership.control_group(fabric_id)):
        found += [str(p) for p in group.glob("r*-j*")]
    lab = Lab.attach(fabric_id)
    try:
        return found + [f["fault"] for f in lab.fabricd.request("faults")["faults"]]
    finally:
        lab.close()


def test_a_job_gives_the_figures_of_a_plain_run_each_time(
    run: Callable[..., dict[str, Any]], virtual: str, tmp_path: Path
) -> None:
    (tmp_path / "plain.yaml").write_text(JOB + FABRIC)
    plain = json.loads(told("run", str(tmp_path / "plain.yaml"), "--out", str(tmp_path / "plain"), "--json"))
    assert plain["counters"]["drops"]["fault"] > 0
    for _ in range(2):
        said = run(JOB + FABRIC)
        assert said["results"] == plain["results"]
        assert said["counters"] == plain["counters"]
        assert said["metrics_sha256"] == plain["metrics_sha256"]
        assert said["fidelity"]["verdict"] == "exact", said["fidelity"]
        for series in (tmp_path / "plain" / "metrics").glob("*_*.parquet"):  # queue_depth, port_sent ..
            assert series.read_bytes() == (Path(said["run"]) / "metrics" / series.name).read_bytes()
    assert left_on(virtual) == []


def test_a_job_sends_by_what_it_likes_and_has_the_figures_of_a_fabric_that_does(
    run: Callable[..., dict[str, Any]], virtual: str, tmp_path: Path
) -> None:
    """Marks are from the thresholds of the fabric's control: for both of these they follow from the line rate."""
    job = "name: swift\nworkload: [{load: {pattern: burst, to: 0, size: 300KB, flows: 1}}]\ntransport: {cc: swift}\n"
    (tmp_path / "plain.yaml").write_text(job + FABRIC.replace("transport: {cc: dcqcn}\n", ""))
    plain = json.loads(told("run", str(tmp_path / "plain.yaml"), "--out", str(tmp_path / "plain"), "--json"))
    said = run(job)
    assert said["results"] == plain["results"] != run(job.replace("swift}", "dcqcn}"))["results"]
    assert left_on(virtual) == []


def test_what_stands_there_stays_and_is_no_part_of_the_figures(
    run: Callable[..., dict[str, Any]], virtual: str
) -> None:
    fault = told("inject", "straggler", "--on", "nic:1", "--factor", "2", "--fabric", virtual).strip()
    try:
        first, second = run(JOB), run(JOB)
        assert first["metrics_sha256"] == second["metrics_sha256"]
        assert left_on(virtual) == [fault]
    finally:
        told("heal", "all", "--fabric", virtual)


def test_what_is_in_force_is_stored_with_the_run(run: Callable[..., dict[str, Any]], virtual: str) -> None:
    """A fault and an action that stand; neither the run's own faults nor what is over already."""
    plain = Path(run(JOB)["run"])
    assert load(plain).live == {"fabric": virtual, "in_force": []}
    fault = told("inject", "straggler", "--on", "nic:1", "--factor", "2", "--fabric", virtual).strip()
    passed = told("inject", "loss", "--on", "nic:0", "--rate", "0.5", "--for", "1ns", "--fabric", virtual).strip()
    told("config", "interface", "speed", "leaf0:1", "100Gbps", "--fabric", virtual)
    told("config", "interface", "speed", "leaf0:2", "100Gbps", "--fabric", virtual)
    told("config", "rollback", "--fabric", virtual)
    try:
        first = load(Path(run(JOB)["run"])).live[
            "in_force"
        ]  # in it the short loss gets over, and what the rollback does
        its = Path(run(JOB)["run"])
    finally:
        told("heal", "all", "--fabric", virtual)
        told("config", "rollback", "all", "--fabric", virtual)
    straggler = {"what": "fault", "id": fault, "line": "straggler --on nic:1 --factor 2.0"}
    speed = {"what": "action", "id": "1", "line": "interface speed leaf0:1 100Gbps"}
    there = {"from_us": None, "gone": False}
    assert load(its).live["in_force"] == [{**straggler, **there, "off": False}, {**speed, **there}], passed
    assert set(compare([plain, its]).differing) == {
        "live.faults: straggler --on nic:1 --factor 2.0", "live.config: interface speed leaf0:1 100Gbps"
    }  # fmt: skip
    assert load(its).summary["live"] == load(its).live
    assert "- `testbed config interface speed leaf0:1 100Gbps`: all the time" in (its / "report.md").read_text()
    passing = {"what": "action", "id": "2", "line": "interface speed leaf0:2 100Gbps", "from_us": None, "gone": True}
    assert {**passing, "passing": True} in first
    assert [one.get("passing") for one in load(Path(run(JOB)["run"])).live["in_force"]] == [True]
    assert load(Path(run(JOB)["run"])).live["in_force"] == []


@pytest.mark.parametrize("which", [1, 2])
def test_one_whose_disk_is_full_leaves_nothing(
    run: Callable[..., dict[str, Any]], virtual: str, monkeypatch: pytest.MonkeyPatch, which: int
) -> None:
    fault = told("inject", "straggler", "--on", "nic:1", "--factor", "2", "--fabric", virtual).strip()
    before, calls, keep = run(JOB)["metrics_sha256"], [], Attempt.keep_live

    def full(attempt: Attempt) -> None:
        calls.append(which)
        if len(calls) == which:
            raise OSError(errno.ENOSPC, "No space left on device")
        keep(attempt)

    try:
        with monkeypatch.context() as patch, pytest.raises((OSError, UserError)):
            patch.setattr(Attempt, "keep_live", full)
            run(JOB)
        assert left_on(virtual) == [fault]
        assert run(JOB)["metrics_sha256"] == before
    finally:
        told("heal", "all", "--fabric", virtual)


def test_what_comes_and_goes_during_a_run_is_stored_with_it(virtual: str, tmp_path: Path) -> None:
    process = begun(virtual, tmp_path)
    at = ("--fabric", virtual)
    try:
        partial = load(tmp_path / "endless.partial")
        assert partial.live["in_force"] == []  # a run that is killed has what was there when it began
        stays = told("inject", "straggler", "--on", "nic:1", "--factor", "2", *at).strip()
        went = told("inject", "loss", "--on", "nic:0", "--rate", "0.5", *at).strip()
        told("heal", went, *at)
        told("config", "interface", "mtu", "leaf0:1", "4096", *at)
        told("config", "rollback", *at)
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=300)
        told("heal", "all", *at)
    straggler, loss, mtu = load(tmp_path / "endless.failed").live["in_force"]
    assert straggler == {
        "what": "fault", "id": stays, "line": "straggler --on nic:1 --factor 2.0", "from_us": straggler["from_us"],
        "gone": False,
    }  # fmt: skip
    assert loss == {"what": "fault", "id": went, "line": None, "primitive": "frames"}
    assert (mtu["line"], mtu["gone"]) == ("interface mtu leaf0:1 4096", True)
    assert 0 < straggler["from_us"] <= mtu["from_us"] <= mtu["until_us"]


def test_what_the_file_says_of_the_fabric_must_be_as_it_is(run: Callable[..., dict[str, Any]], virtual: str) -> None:
    with pytest.raises(InputError) as error:
        run(JOB + FABRIC, "fabric.cable.rate=100Gbps")
    assert error.value.what == f"it is 100Gbps here, and 400Gbps on fabric {virtual}"
    assert error.value.where == "--set fabric.cable.rate=100Gbps"
    with pytest.raises(InputError, match="it is 2 here, and 1 on") as error:
        run(JOB + "seed: 2\n")
    assert error.value.where.endswith("job.yaml: seed")
    with pytest.raises(InputError, match="a sweep"):
        run(JOB + "sweep: {workload.0.iterations: [1, 2]}\n")


def begun(virtual: str, folder: Path) -> subprocess.Popen[str]:
    """A run on the live fabric that does not end by itself, at work."""
    (folder / "endless.yaml").write_text(ENDLESS + JOB[JOB.index("inject:") : JOB.index("measure:")])
    out = folder / "endless"
    command = [*TESTBED, "run", str(folder / "endless.yaml"), "--fabric", virtual, "--out", str(out)]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    lines = out.with_name("endless.partial") / "measurements.jsonl"
    wait_until(lambda: lines.exists() and lines.stat().st_size, "the first measurement")
    return process


def test_one_job_at_a_time_and_one_that_is_killed_leaves_nothing(
    run: Callable[..., dict[str, Any]], virtual: str, tmp_path: Path
) -> None:
    before = run(JOB)["metrics_sha256"]
    process = begun(virtual, tmp_path)
    try:
        (job,) = [j for j in jobs.all_jobs(ownership.find(virtual)) if j.info["state"] == jobs.RUNNING]
        with pytest.raises(UserError) as error:
            run(JOB)
        assert error.value.what == f"job {job.id} (endless) runs on fabric {virtual}"
        assert f"testbed job stop {job.id}" in error.value.hint
        assert left_on(virtual)
    finally:
        process.send_signal(signal.SIGKILL)
        process.communicate()
    assert run(JOB)["metrics_sha256"] == before
    assert jobs.find(ownership.find(virtual), job.id).info["state"] == jobs.KILLED
    assert left_on(virtual) == []


def test_one_that_is_interrupted_leaves_nothing_and_keeps_what_it_measured(
    run: Callable[..., dict[str, Any]], virtual: str, tmp_path: Path
) -> None:
    process = begun(virtual, tmp_path)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=300)
    assert process.returncode == 130
    assert left_on(virtual) == []
    assert (tmp_path / "endless.failed" / "measurements.jsonl").stat().st_size
    assert run(JOB)["fidelity"]["verdict"] == "exact"


def test_a_job_in_the_background_repeats_and_is_stopped(
    run: Callable[..., dict[str, Any]], virtual: str, tmp_path: Path
) -> None:
    plain = run(JOB)["metrics_sha256"]
    (tmp_path / "job.yaml").write_text(JOB)
    said = json.loads(
        cli("job", "start", str(tmp_path / "job.yaml"), "--repeat", "2", "--json", *at(virtual, tmp_path))
    )
    record = ownership.find(virtual)
    wait_until(lambda: jobs.find(record, said["job"]).info["state"] != jobs.RUNNING, "the job to end", 60)
    done = status(virtual, said["job"])
    assert (done["state"], done["runs"], done["last"]["metrics_sha256"]) == (jobs.DONE, 2, plain)
    assert json.loads((tmp_path / "runs" / "0001" / "summary.json").read_text())["metrics_sha256"] == plain

    (tmp_path / "endless.yaml").write_text(ENDLESS)
    begun = json.loads(cli("job", "start", str(tmp_path / "endless.yaml"), "--forever", "--json", "--fabric", virtual,
                           "--out", str(tmp_path / "endless")))  # fmt: skip
    refused = json.loads(told("job", "start", str(tmp_path / "job.yaml"), "--json", "--fabric", virtual, code=2))
    assert refused["error"]["what"] == f"job {begun['job']} (endless) runs on fabric {virtual}"
    assert json.loads(told("status", virtual, "--json"))["job"]["job"] == begun["job"]
    stopped = json.loads(told("job", "stop", "--fabric", virtual, "--json"))["job"]
    assert (stopped["job"], stopped["state"]) == (begun["job"], jobs.STOPPED)
    assert left_on(virtual) == []


def at(fabric_id: str, folder: Path) -> list[str]:
    return ["--fabric", fabric_id, "--out", str(folder / "runs")]


def status(fabric_id: str, job: str) -> dict[str, Any]:
    found = [j for j in json.loads(told("job", "status", "--fabric", fabric_id, "--json"))["jobs"] if j["job"] == job]
    return dict(found[0])


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """A fabric with the real clock, and what `up` printed."""
    file = tmp_path_factory.mktemp("real") / "up.yaml"
    file.write_text(
        "name: real\nclock: {real: {dilation: 10000}}\nfabric: {topology: {star: {hosts: 2}}}\n"
        "workload: [{collective: all_reduce, sizes: [4KiB]}]\n"
        # what is lost is sent again after a time that takes a minute here
        "inject: [{fault: loss, on: 'cable:h0-sw0', rate: 0.001}, {fault: worker_killed, on: 'nic:1', at: 1s}]\n"
    )
    printed = told("up", str(file))
    fabric_id = printed.split()[1]
    yield fabric_id, printed
    gone(fabric_id)


def test_up_puts_faults_in_and_says_what_it_leaves(real: tuple[str, str]) -> None:
    fabric_id, printed = real
    assert "  fault u1: loss on cable:h0-sw0\n" in printed
    assert "  fault left to a run: worker_killed on nic:1: " in printed
    assert re.search(rf"testbed run \S+ --fabric {fabric_id}   its workload, which has not run", printed)
    assert [f["id"] for f in json.loads(told("status", fabric_id, "--json"))["faults"]] == ["u1"]


def test_with_the_real_clock_a_job_runs_beside_what_is_there(real: tuple[str, str], tmp_path: Path) -> None:
    """Its own loss beside the one that stands, which stays; and so does a rank's shell."""
    cli("exec", "--fabric", real[0], "0", "--", "true")
    text = "name: real\nworkload: [{collective: all_reduce, sizes: [4KiB]}]\n"
    (tmp_path / "job.yaml").write_text(text + "inject: [{fault: loss, on: 'cable:h0-sw0', rate: 0.001}]\n")
    result = run_on(real[0], tmp_path / "job.yaml", (), tmp_path / "run", Progress())
    assert [row["wrong"] for row in result.results] == [0]
    assert result.results[0]["start_ns"] < 1e9  # since the job began
    assert left_on(real[0]) == ["u1"]
    lab = Lab.attach(real[0])
    try:
        assert lab.containers.running(0)
        assert not lab.containers.running(1)
    finally:
        lab.close()


def test_each_part_is_found_by_what_inspect_says(real: tuple[str, str]) -> None:
    said = json.loads(told("status", real[0], "--where", "--json"))
    first = said["ranks"][0]
    assert (first["host"], first["interface"], first["ip"], first["port"]) == ("h0", "h0-eth0", "10.0.0.1", ["sw0:1"])
    links = subprocess.check_output(["nsenter", f"--net={first['netns']}", "ip", "link", "show", "h0-eth0"], text=True)
    assert first["mac"] in links
    for line in said["type"]:
        printed = subprocess.check_output([*TESTBED, *line.split()[1:]], text=True, cwd=ROOT)
        assert printed
    assert "switches programmed" in told("show", "logging", real[0], "--part", "controller")


def test_status_says_what_is_wrong(real: tuple[str, str]) -> None:
    """A controller that is stopped does not answer; a fabric whose fabricd was killed says so."""
    record = ownership.find(real[0])
    healthy = json.loads(told("status", real[0], "--json"))
    assert healthy["controller"] | {"heard_s": 0} == {
        "library": "os-ken", "pid": record.processes["controller"].pid, "alive": True, "answers": True, "heard_s": 0,
        "connected": 1, "switches": 1,
    }  # fmt: skip
    hung = told("inject", "controller_hung", "--on", "controller", "--fabric", real[0]).strip()
    assert json.loads(told("status", real[0], "--json"))["controller"]["answers"] is False
    assert "connected to 1 of 1 switches" in (printed := told("status", real[0])) and "does not answer" in printed
    told("heal", hung, "--fabric", real[0])
    assert json.loads(told("status", real[0], "--json"))["controller"]["answers"] is True
    controller = record.processes["controller"]
    assert controller.signal(signal.SIGSTOP)
    wait_until(controller.stopped, "the controller stands still")
    assert "does not answer" in told("status", real[0])
    record.processes["fabricd"].signal(signal.SIGKILL)
    wait_until(lambda: ownership.find(real[0]).state == "dead", "its end")
    printed = told("status", real[0])
    assert f"its fabricd (process {record.processes['fabricd'].pid}) has ended" in printed
    with pytest.raises(UserError, match="has ended"):
        Lab.attach(real[0])


def test_a_job_on_a_fabric_that_cannot_go_on_is_refused_at_once(tmp_path: Path) -> None:
    fabric = up("name: small\nfabric: {topology: {clos: {leaves: 2, spines: 1, hosts_per_leaf: 1}}}\n", tmp_path)
    (work := tmp_path / "job.yaml").write_text(ENDLESS)
    try:
        fabricd = ownership.find(fabric).owner
        assert fabricd is not None
        assert fabricd.signal(signal.SIGSTOP)
        wait_until(fabricd.stopped, "fabricd stands still")
        with pytest.raises(UserError, match="cannot go on: fabricd .* is stopped"):
            background(fabric, str(work), out=str(tmp_path / "out"))
        fabricd.signal(signal.SIGKILL)
        wait_until(lambda: ownership.find(fabric).state == "dead", "fabricd is gone")
        with pytest.raises(UserError, match="is dead"):
            background(fabric, str(work), out=str(tmp_path / "out"))
        assert not (tmp_path / "out").exists()
    finally:
        gone(fabric)
