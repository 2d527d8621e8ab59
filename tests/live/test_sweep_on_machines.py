"""Sweeps on other machines: real sshd servers in namespaces, with keys of their own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from results.store.sweeps import Sweep
from testbed.experiment import loads
from testbed.run.sweep import run_sweep
from tests.parts.machine import ROOT, wait_until
from tests.parts.small_sweep import SWEEP, Noted, told
from tests.parts.ssh_machines import SSHD, SshMachines

pytestmark = pytest.mark.skipif(SSHD is None, reason="needs sshd (openssh-server)")
POINTS = 4


@pytest.fixture
def cluster() -> Iterator[SshMachines]:
    # a short name: the machines' temporary folders are in it, and sockets in these
    with TemporaryDirectory(prefix="sw-") as folder, SshMachines(Path(folder)) as made:
        (made.folder / "sweep.yaml").write_text(SWEEP + f"sweep: {{seed: {list(range(1, POINTS + 1))}}}\n")
        yield made


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, object]]:
    """The rows of the same sweep here, one point after the other."""
    text = SWEEP + f"sweep: {{seed: {list(range(1, POINTS + 1))}}}\n"
    _, rows = run_sweep(loads(text), tmp_path_factory.mktemp("alone") / "sweep", Noted())
    return rows


def run(cluster: SshMachines, *more: str) -> list[str]:
    return ["run", str(cluster.folder / "sweep.yaml"), "--on", str(cluster.file(points=2)), "--out",
            str(cluster.folder / "out"), *more]  # fmt: skip


def until(process: subprocess.Popen[str], text: str) -> str:
    """Reads stderr up to this."""
    assert process.stderr is not None
    said = ""
    for line in process.stderr:
        said += line
        if text in line:
            return said
    raise AssertionError(f"it ended first:\n{said}")


def nothing_left(cluster: SshMachines) -> None:
    for machine in cluster.machines:
        if Path(f"/proc/{machine.pid}").exists():
            wait_until(lambda m=machine: m.processes("machines.worker") == [], "the worker's end")  # type: ignore[misc]
            # a point that had just begun, and was noted by nobody yet, ends by itself
            wait_until(lambda m=machine: m.fabrics() == [] and m.folders() == [], "nothing left")  # type: ignore[misc]


def test_two_machines_give_what_one_gives(cluster: SshMachines, alone: list[dict[str, object]]) -> None:
    cluster.add()
    cluster.add()
    done = cluster.testbed(*run(cluster, "--json"))
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["points"] == alone
    lines = (cluster.folder / "out" / "points-run.jsonl").read_text().splitlines()
    assert {json.loads(line)["machine"] for line in lines} == {m.address for m in cluster.machines}
    point = Sweep(cluster.folder / "out")
    assert all((point.path / f"point-{n}" / "metrics" / "results.parquet").exists() for n in range(POINTS))
    nothing_left(cluster)
    listening = subprocess.run(["ss", "-ltnH"], capture_output=True, text=True, check=True)
    assert "8787" not in listening.stdout


@pytest.mark.parametrize("what", ["worker and points", "machine"])
def test_what_was_lost_with_a_machine_runs_on_another(
    cluster: SshMachines, alone: list[dict[str, object]], what: str
) -> None:
    first = cluster.add()
    cluster.add()
    with cluster.begin(*run(cluster)) as process:
        wait_until(first.fabrics, "a fabric there")  # so that there is a point to lose
        if what == "machine":
            first.kill()
        else:
            for pid in first.processes("machines.worker") + first.processes("forkserver"):
                with suppress(ProcessLookupError):  # the fork server ends with its worker
                    os.kill(pid, signal.SIGKILL)
        out, err = process.communicate(timeout=300)
    assert process.returncode == 0, err
    assert f"{first.address} is lost: its points run on {cluster.machines[1].address}" in err
    assert told(cluster.folder / "out")["points"] == alone
    assert ("cannot be reached" if what == "machine" else "what was left there is removed") in err
    nothing_left(cluster)


def test_an_interrupt_ends_everything_everywhere_and_a_new_start_goes_on(
    cluster: SshMachines, alone: list[dict[str, object]]
) -> None:
    cluster.add()
    with cluster.begin(*run(cluster)) as process:
        until(process, "1 of 4 points done")
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=300)
    assert process.returncode == 130 and "the sweep was interrupted" in err
    nothing_left(cluster)
    done = cluster.testbed(*run(cluster))
    assert done.returncode == 0 and "of 4 points are done already, in " in done.stderr
    assert told(cluster.folder / "out")["points"] == alone


def test_if_the_command_is_killed_the_machines_tidy_up(cluster: SshMachines) -> None:
    machine = cluster.add()
    with cluster.begin(*run(cluster)) as process:
        wait_until(machine.fabrics, "a fabric")
        process.kill()
    wait_until(lambda: not machine.fabrics(), "the end of all fabrics")
    nothing_left(cluster)


def test_machines_that_cannot_be_used_are_all_named_before_anything_runs(cluster: SshMachines) -> None:
    good = cluster.add()
    wrong_key = cluster.add(known=False)
    cluster.know(wrong_key, good)
    unknown = cluster.add(known=False)
    refusing = cluster.add()
    (refusing.folder / "authorized_keys").write_text("")
    no_switch = cluster.add(prepare="mount --bind /dev/null $(command -v ovs-vswitchd)")
    closed = cluster.add(forwarding="no")
    other = cluster.folder / "other"
    python = other / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    hello = json.dumps({"versions": {"railbed": "0.0.9+1"}})
    python.write_text(f"#!/bin/sh\necho '{hello}'\nread x\n")
    python.chmod(0o755)
    lines = [f"{{host: {m.address}, testbed: {ROOT}}}" for m in (good, wrong_key, unknown, refusing, no_switch)]
    lines += [
        f"{{host: {closed.address}, testbed: {other}}}",
        "{host: nowhere.invalid}",
        f"{{host: {good.address}, port: 9}}",
    ]
    command = run(cluster)[:3]
    file = cluster.file("machines:\n" + "".join(f"  - {line}\n" for line in lines))
    done = cluster.testbed(*command, str(file), "--out", str(cluster.folder / "out"))
    assert done.returncode == 3 and not list(cluster.folder.glob("out*.part*"))
    for line, machine, what in (
        (3, wrong_key.address, "its host key is not the one that is known"),
        (4, unknown.address, "its host key is not known (ssh-ed25519 SHA256:"),
        (5, refusing.address, "it refuses the key"),
        (6, no_switch.address, "open vswitch: "),
        (7, closed.address, "it has another version of Railbed: 0.0.9+1, here it is "),
        (8, "nowhere.invalid", "there is no such host"),
        (9, f"{good.address}:9", "it cannot be reached"),
    ):
        at = f"{file}:{line}: machines[{line - 2}].host"
        assert f"{machine}: {what}" in done.stderr and at in done.stderr, done.stderr
    assert f"ssh-keygen -R {wrong_key.address}, and log in once: " in done.stderr
    assert good.address + ": " not in done.stderr
    assert cluster.key.read_text().splitlines()[1] not in done.stderr
    nothing_left(cluster)


def test_an_sshd_that_forwards_nothing_is_enough(cluster: SshMachines, alone: list[dict[str, object]]) -> None:
    cluster.add(forwarding="no")
    done = cluster.testbed(*run(cluster))
    assert done.returncode == 0, done.stderr
    assert told(cluster.folder / "out")["points"] == alone
    assert not list((cluster.folder / "out").glob(".*"))  # what came home has been put in its place
    nothing_left(cluster)


def test_without_railbed_it_says_so(cluster: SshMachines) -> None:
    machine = cluster.add()
    line = run(cluster)
    file = cluster.file(f"machines: [{{host: {machine.address}, testbed: /nowhere}}]\n")
    done = cluster.testbed(*line[:3], str(file), "--out", str(cluster.folder / "out"))
    assert done.returncode == 3 and "there is no Railbed in /nowhere" in done.stderr


def test_a_machine_whose_points_fail_gets_no_more_and_they_run_on_another(
    cluster: SshMachines, alone: list[dict[str, object]]
) -> None:
    """Its runc is there, as far as the doctor sees, and starts nothing."""
    broken, real = cluster.folder / "runc", cluster.folder / "real-runc"
    broken.write_text(f'#!/bin/sh\n[ "$1" = --version ] && exec {real} "$@"\nexit 1\n')
    broken.chmod(0o755)
    bad = cluster.add(prepare=f"cp $(command -v runc) {real} && mount --bind {broken} $(command -v runc)")
    good = cluster.add()
    done = cluster.testbed(*run(cluster))
    assert done.returncode == 0, done.stderr
    assert f"{bad.address} runs no more points: 2 points failed there that others could run" in done.stderr
    assert told(cluster.folder / "out")["points"] == alone
    lines = (cluster.folder / "out" / "points-run.jsonl").read_text().splitlines()
    assert {json.loads(line)["machine"] for line in lines} == {good.address}
    nothing_left(cluster)


def test_a_machine_without_control_groups_is_named_before_anything_runs(cluster: SshMachines) -> None:
    cluster.add(prepare="mount -t tmpfs -o size=1m none /sys/fs/cgroup")
    done = cluster.testbed(*run(cluster))
    assert done.returncode == 3 and "cgroups: " in done.stderr, done.stderr


def test_what_a_killed_worker_has_left_goes_when_the_next_one_comes(cluster: SshMachines) -> None:
    machine = cluster.add()
    with cluster.begin(*run(cluster)) as process:
        wait_until(machine.fabrics, "a fabric")
        theirs = machine.processes("machines.worker") + machine.processes("forkserver")
        for pid in theirs:  # else they would see the end of who sent them, and tidy up
            os.kill(pid, signal.SIGSTOP)
        process.kill()
        for pid in theirs:
            os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not machine.processes("machines.worker"), "its end")
    assert len(machine.folders()) == 1
    done = cluster.testbed(*run(cluster))
    assert done.returncode == 0, done.stderr
    nothing_left(cluster)


def test_a_machine_without_a_file_that_the_sweep_names_says_which(cluster: SshMachines) -> None:
    app = cluster.folder / "app.py"
    app.write_text("def start(network):\n    pass\n")
    machine = cluster.add(prepare=f"mount --bind /dev/null {app}")
    text = SWEEP + f"control: {{apps: [{app}]}}\nsweep: {{seed: [1]}}\n"
    (cluster.folder / "sweep.yaml").write_text(text)
    done = cluster.testbed(*run(cluster))
    assert done.returncode == 3, done.stderr
    assert f"{machine.address}: this file is another one there" in done.stderr and str(app) in done.stderr
