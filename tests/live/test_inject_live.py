"""Faults on a live fabric by the commands. Where a fault is to outlive its command, that is a process of its own."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from testbed.fabric.lab import Lab
from testbed.machine import ownership
from testbed.machine.processes import Process
from testbed.machine.teardown import in_control_groups
from tests.parts.machine import ROOT, assert_nothing_left, here

EXPERIMENT = "name: live\nfabric: {topology: {clos: {leaves: 2, spines: 2, hosts_per_leaf: 1}}}\n"


def command(*words: str) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, "-m", "testbed", *words]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(line, capture_output=True, text=True, timeout=300, env=environment)


class Live:
    def __init__(self, about: dict[str, Any]) -> None:
        self.id: str = about["id"]
        self.ip: dict[str, str] = {rank: nic["ip"] for rank, nic in about["ranks"].items()}

    def ok(self, *words: str, by: Callable[..., subprocess.CompletedProcess[str]] = here) -> str:
        done = by(*words, "--fabric", self.id)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def refused(self, *words: str) -> str:
        done = here(*words, "--fabric", self.id)
        assert done.returncode == 2, (done.stdout, done.stderr)
        assert "Traceback" not in done.stderr
        return done.stderr

    def faults(self) -> dict[str, dict[str, Any]]:
        done = here("show", "faults", self.id, "--json")
        return {fault["id"]: fault for fault in json.loads(done.stdout)}

    def pings(self) -> bool:
        done = command("exec", "--fabric", self.id, "0", "--", "ping", "-c", "2", "-i", "0.2", "-W", "1", self.ip["1"])
        return done.returncode == 0


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    file = tmp_path_factory.mktemp("live") / "live.yaml"
    file.write_text(EXPERIMENT)
    up = here("up", str(file), "--json")
    assert up.returncode == 0, up.stderr
    live = Live(json.loads(up.stdout))
    try:
        yield live
    finally:
        here("down", live.id)
        assert_nothing_left(live.id)


@pytest.fixture(autouse=True)
def healed(live: Live) -> Iterator[None]:
    yield
    live.ok("heal", "all")
    assert live.faults() == {}


def test_a_fault_stays_until_it_is_healed(live: Live) -> None:
    assert live.pings()
    name = live.ok("inject", "loss", "--on", "nic:1", "--rate", "1.0", by=command)
    assert not live.pings()
    fault = live.faults()[name]
    assert (fault["fault"], fault["on"], fault["state"], fault["rate"]) == ("loss", "nic:1", "on", 1.0)
    assert fault["hits"] >= 2
    assert live.ok("heal", name, by=command) == f"healed: {name}"
    assert live.pings()


def test_healing_one_leaves_the_others(live: Live) -> None:
    first = live.ok("inject", "loss", "--on", "nic:1", "--rate", "1.0")
    second = live.ok("inject", "missing_entry", "--on", "switch:leaf0", "--to", "1")
    assert first != second
    live.ok("heal", first)
    assert set(live.faults()) == {second}
    assert not live.pings()
    live.ok("heal", second)
    assert live.pings()


def test_the_controller_is_killed_and_started_again(live: Live) -> None:
    def controller() -> Process:
        return ownership.find(live.id).processes["controller"]

    before = controller()
    name = live.ok("inject", "controller_dead", "--on", "controller", by=command)
    assert not before.alive()
    assert live.pings()
    live.ok("heal", name, by=command)
    assert controller() != before
    assert controller().alive()
    assert live.pings()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["inject", "loss", "--on", "nic:7", "--rate", "0.1"], "nic:7"),
        (["inject", "loss", "--on", "cable:leaf0-leaf1", "--rate", "0.1"], "no such cable"),
        (["inject", "loss", "--on", "switch:leaf0", "--rate", "2"], "rate"),
        (["inject", "reduced_rate", "--on", "all", "--rate", "9Tbps"], "at: command line: --rate 9Tbps"),
        (["inject", "loop", "--on", "switch:leaf0", "--to", "0", "--neighbour", "h0"], "hint: its neighbours: spine0"),
        (["inject", "controller_dead", "--on", "controller", "--for", "1s"], "leave --at, --for and --every out"),
        (["heal", "f99"], "there is no fault 'f99'"),
    ],
)
def test_what_cannot_be_is_refused(live: Live, words: list[str], said: str) -> None:
    assert said in live.refused(*words)


def test_a_fabric_goes_down_with_its_faults(tmp_path: Path) -> None:
    (tmp_path / "live.yaml").write_text(EXPERIMENT)
    up = here("up", str(tmp_path / "live.yaml"), "--json")
    live = Live(json.loads(up.stdout))
    live.ok("inject", "cable_down", "--on", "all")
    live.ok("inject", "controller_hung", "--on", "controller")
    live.ok("inject", "worker_killed", "--on", "nic:0")
    assert here("down", live.id).returncode == 0
    assert_nothing_left(live.id)


def _quota_us(live: Live, rank: int) -> int:
    """What the kernel lets the rank's container use of each 100 ms."""
    lab = Lab.attach(live.id)
    try:
        process = lab.containers.running(rank)
        assert process is not None
        lines = (line.split(":") for line in Path(f"/proc/{process.pid}/cgroup").read_text().splitlines())
        mine = {name: group for _, names, group in lines for name in names.split(",")}
    finally:
        lab.close()
    if "cpu" in mine:
        return int(Path(f"/sys/fs/cgroup/cpu{mine['cpu']}/cpu.cfs_quota_us").read_text())
    quota = Path(f"/sys/fs/cgroup{mine['']}/cpu.max").read_text().split()[0]
    return -1 if quota == "max" else int(quota)


def test_a_container_gets_less_of_a_cpu(live: Live) -> None:
    command("exec", "--fabric", live.id, "0", "--", "true")  # makes its container
    assert _quota_us(live, 0) == -1
    half = live.ok("inject", "cpu_quota", "--on", "nic:0", "--cpus", "0.5")
    fifth = live.ok("inject", "cpu_quota", "--on", "nic:0", "--cpus", "0.2")
    assert _quota_us(live, 0) == 20_000
    live.ok("heal", fifth)
    assert _quota_us(live, 0) == 50_000
    live.ok("heal", half)
    assert _quota_us(live, 0) == -1


def test_less_of_a_cpu_for_one_rank_starts_a_container_for_it_alone(live: Live) -> None:
    lab = Lab.attach(live.id)

    def running() -> list[int]:
        return [rank for rank in lab.containers.names if lab.containers.running(rank)]

    try:
        for rank in lab.containers.names:
            lab.containers.remove(rank)
        fault = live.ok("inject", "cpu_quota", "--on", "nic:1", "--cpus", "0.2")
        assert running() == [1] and _quota_us(live, 1) == 20_000
        lab.containers.remove(1)
        live.ok("heal", fault)
        assert running() == []
    finally:
        lab.close()


def test_less_of_a_cpu_for_all_strikes_who_lives_and_who_lives_again(live: Live) -> None:
    killed = live.ok("inject", "worker_killed", "--on", "nic:0")
    fault = live.ok("inject", "cpu_quota", "--on", "all", "--cpus", "0.2")
    assert _quota_us(live, 1) == 20_000
    live.ok("heal", killed)
    assert _quota_us(live, 0) == 20_000
    live.ok("heal", fault)
    assert _quota_us(live, 0) == _quota_us(live, 1) == -1


def test_a_killed_container_stays_dead_until_it_is_healed(live: Live) -> None:
    def run() -> subprocess.CompletedProcess[str]:
        return command("exec", "--fabric", live.id, "0", "--", "true")

    assert run().returncode == 0
    twice = [live.ok("inject", "worker_killed", "--on", "nic:0") for _ in range(2)]
    for fault in twice:
        done = run()
        assert done.returncode == 1
        assert "the container of rank 0 was killed by the fault worker_killed" in done.stderr
        live.ok("heal", fault)
    assert run().returncode == 0


def test_a_frozen_rank_stands_still_until_it_is_healed(live: Live) -> None:
    """Its programs are stopped, not only what it does by RDMA; a program goes on where it was."""

    def states() -> set[str]:
        lab = Lab.attach(live.id)
        try:
            return {process.state() for process in in_control_groups(f"railbed-{live.id}/r0")}
        finally:
            lab.close()

    arguments = [
        sys.executable,
        "-m",
        "testbed",
        "exec",
        "--fabric",
        live.id,
        "0",
        "--",
        "sh",
        "-c",
        "echo on; read line; echo $line",
    ]
    with subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT) as program:
        assert program.stdin is not None and program.stdout is not None
        assert program.stdout.readline() == "on\n"
        twice = [live.ok("inject", "worker_frozen", "--on", "nic:0") for _ in range(2)]
        program.stdin.write("again\n")
        program.stdin.flush()
        for fault in twice:
            assert states() == {"T"}
            done = command("exec", "--fabric", live.id, "0", "--", "true")
            assert done.returncode == 1
            assert "rank 0 stands still: the fault worker_frozen" in done.stderr
            live.ok("heal", fault)
        assert program.stdout.readline() == "again\n"
    assert program.returncode == 0
    assert command("exec", "--fabric", live.id, "0", "--", "true").returncode == 0


def test_no_file_tells_which_rank_is_frozen(live: Live) -> None:
    """By its name or its time. Also a rank in which nothing has run yet stands still, and one that was dead meanwhile
    does so again."""
    lab = Lab.attach(live.id)
    try:

        def files() -> dict[str, int]:
            return {str(path.relative_to(lab.dir)): path.lstat().st_mtime_ns for path in lab.dir.rglob("*")}

        def of_ranks(since: dict[str, int]) -> list[set[str]]:
            """By rank, its files that are new, or newer."""
            new = [name for name, when in files().items() if since.get(name) != when]
            owns = [re.compile(rf"^((?:runc|containers)/(?:{lab.containers.name(0)[:-1]})?|container){r}\b")
                    for r in range(2)]  # fmt: skip
            return [{own.sub("R", name) for name in new if own.search(name)} for own in owns]

        def refused() -> bool:
            return "stands still" in command("exec", "--fabric", live.id, "0", "--", "true").stderr

        for rank in range(2):
            lab.containers.remove(rank)
        shutil.rmtree(lab.dir / "containers", ignore_errors=True)  # also the locks, as in a fabric that has just begun
        before = files()
        for rank in range(2):
            lab.containers.idle(rank)  # as in a world on the real clock
        its, others = of_ranks(before)
        assert its == others and {"R.lock", "R.log"} <= its
        before = files()
        frozen = live.ok("inject", "worker_frozen", "--on", "nic:0")
        assert of_ranks(before) == [set(), set()]
        assert refused()
        killed = live.ok("inject", "worker_killed", "--on", "nic:0")
        again = live.ok("inject", "worker_frozen", "--on", "nic:0")  # of what is not there
        live.ok("heal", again)
        live.ok("heal", killed)
        assert refused()
        live.ok("heal", frozen)
        assert command("exec", "--fabric", live.id, "0", "--", "true").returncode == 0
        lab.containers.remove(0)
        live.ok("inject", "worker_frozen", "--on", "nic:0")
        assert refused()
    finally:
        lab.close()
        live.ok("heal", "all")
