"""Ranks' containers: programs run and end there, by `testbed exec` too, and ranks may share one."""

from __future__ import annotations

import json
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from testbed.experiment import loads
from testbed.fabric.lab import Lab
from testbed.faults import CannotInject, Injection
from testbed.inject.live import put_in
from testbed.machine.ownership import HOST, Record
from tests.parts.machine import ROOT, TESTBED, wait_until
from tests.parts.rank_container import folder as folder
from tests.parts.rank_container import lab as lab
from tests.parts.rank_container import shell, worker

# -- running and ending


@pytest.mark.parametrize(
    ("script", "code"), [("exit 0", 0), ("exit 7", 7), ("kill -KILL $$", -9), ("kill -SEGV $$", -11)]
)
def test_workers_tell_how_they_ended(lab: Lab, script: str, code: int) -> None:
    with worker(lab, 0, "sh", "-c", script) as (w, _):
        assert w.wait() == code
        assert w.poll() == code


def test_a_worker_runs_until_it_is_killed(lab: Lab) -> None:
    with worker(lab, 0, "sleep", "600") as (w, _):
        assert w.poll() is None
        assert w.pid
        assert Path(f"/proc/{w.pid}").exists()
        w.kill()
        assert w.wait() == -signal.SIGKILL


def test_killing_takes_the_children_along(lab: Lab) -> None:
    with worker(lab, 0, "sh", "-c", "sleep 600 & sleep 600 & wait") as (w, _):
        assert w.started()
        group = next(Path("/sys/fs/cgroup").glob(f"*/railbed-{lab.id}/r0/cgroup.procs"))
        wait_until(lambda: len(group.read_text().split()) == 4, "init, shell and two sleeps")
        w.kill(signal.SIGTERM)
        assert w.wait() == -signal.SIGTERM
        wait_until(lambda: group.read_text() == "", "nobody is left")


def test_what_a_fabric_left_to_us_is_gone_with_it(tmp_path: Path) -> None:
    """Hosts and containers outlive who started them: a process that runs sweeps would keep all of them as zombies."""
    with Lab.up(loads("name: e\nfabric: {topology: {star: {hosts: 3}}}")) as lab:
        hosts = [p.pid for name, p in Record.read(lab.dir).processes.items() if name.startswith(HOST)]
        with (tmp_path / "out").open("wb") as out:
            left, removed = (lab.start_worker(rank, ["sleep", "600"], stdout=out, stderr=out) for rank in (0, 1))
        assert left.started() and removed.started() and len(hosts) == 3
        lab.containers.remove(1)
        assert not Path(f"/proc/{removed.pid}").exists()
    assert [pid for pid in (*hosts, left.pid) if Path(f"/proc/{pid}").exists()] == []


def test_a_program_that_is_not_there(lab: Lab) -> None:
    with worker(lab, 0, "/no/such/program") as (w, out):
        assert w.wait() == 127
    assert "/no/such/program" in out.read_text()


def test_many_workers_start_at_the_same_time(lab: Lab) -> None:
    workers = [lab.start_worker(r, ["sh", "-c", f"exit {r}"], stdout=None, stderr=None) for r in range(4)]
    assert [w.wait() for w in workers] == [0, 1, 2, 3]


def test_commands_run_beside_a_worker(lab: Lab) -> None:
    with worker(lab, 0, "sleep", "600") as (w, _):
        assert w.started()
        assert "sleep\n" in shell(lab, "cat /proc/[0-9]*/comm", rank=0)


# -- testbed exec


def execute(lab: Lab, *argv: str, **more: Any) -> subprocess.CompletedProcess[str]:
    """The command line, in a process of its own."""
    command = [*TESTBED, "exec", "--fabric", lab.id, *argv]
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=300, **more)


@pytest.mark.parametrize(("command", "code"), [("no-such-command", 127), ("/etc/passwd", 126), ("true", 0)])
def test_a_command_that_is_not_there_ends_as_in_a_shell(lab: Lab, command: str, code: int) -> None:
    done = execute(lab, "1", "--", command)
    assert (done.returncode, bool(done.stderr)) == (code, code != 0)


def test_exit_codes_and_streams_pass_through(lab: Lab) -> None:
    done = execute(lab, "1", "--", "sh", "-c", "exit 42")
    assert (done.returncode, done.stdout) == (42, "")
    assert execute(lab, "1", "--", "tr", "a-z", "A-Z", input="some text").stdout == "SOME TEXT"
    done = execute(lab, "1", "--", "sh", "-c", "echo out; echo err >&2")
    assert (done.returncode, done.stdout, done.stderr) == (0, "out\n", "err\n")
    done = execute(lab, "1", "--", "/no/such/program")
    assert (done.returncode, done.stdout) == (127, "")


def test_a_terminal_is_passed_on(lab: Lab) -> None:
    command = f"{' '.join(TESTBED)} exec --fabric {lab.id} 1 -- sh -c 'tty; exit 5'"
    done = subprocess.run(
        ["script", "-qec", command, "/dev/null"], stdin=subprocess.DEVNULL, capture_output=True, text=True, cwd=ROOT
    )
    assert done.returncode == 5
    assert "/dev/pts/0" in done.stdout


def test_the_idle_container_is_made_once(lab: Lab) -> None:
    execute(lab, "1", "--", "sh", "-c", "echo kept > /tmp/file")
    by_name = lab.fabric.nics[1].name
    assert execute(lab, by_name, "--", "cat", "/tmp/file").stdout == "kept\n"


def test_ranks_that_are_not_there(lab: Lab) -> None:
    done = execute(lab, "4", "--", "id")
    assert done.returncode == 2
    assert "no rank 4" in done.stderr
    assert "Traceback" not in done.stderr


# -- a container that ranks share


def test_ranks_that_share_a_container_have_their_sockets_in_it_and_no_others(lab: Lab) -> None:
    out = lab.dir / "shared.out"
    script = "cd /run/railbed/workers; ls -d */sock; ls /run/railbed; echo $RAILBED_RANK"
    with out.open("wb") as stdout:
        w = lab.start_worker(2, ["sh", "-c", script], stdout=stdout, stderr=stdout, others=[3])
    assert w.wait() == 0, out.read_text()
    assert out.read_text().split() == [
        "2/sock",
        "3/sock",
        "init",
        "lib",
        "network",
        "nics",
        "worker.sock",
        "workers",
        "2",
    ]
    config = json.loads((lab.dir / "containers" / "2" / "config.json").read_text())
    resources = config["linux"]["resources"]
    assert resources["memory"]["limit"] == 2 * 2 * (256 << 20) and resources["cpu"]["quota"] == 100_000


def test_a_fault_that_would_strike_other_ranks_too_is_refused(lab: Lab) -> None:
    w = lab.start_worker(0, ["true"], stdout=None, stderr=None, others=[1])
    assert w.wait() == 0
    with pytest.raises(CannotInject, match="rank 1 shares its worker process"):
        put_in(lab, Injection.of({"fault": "worker_killed", "on": "nic:1"}))
    for rank in (0, 1):
        lab.containers.discard(rank)
        assert not lab.containers.shared(rank)
