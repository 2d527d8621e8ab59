"""Finds what a fabric has on this machine, without the code under test; and makes things that are not a fabric's."""

from __future__ import annotations

import io
import json
import os
import secrets
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path

from testbed.cli import cli as commands
from tests.parts.own_switch import shared

ROOT = Path(__file__).resolve().parents[2]
TESTBED = [sys.executable, "-m", "testbed"]
DEADLINE_S = 60.0

STAR = """
name: star
clock: virtual
fabric: {topology: {star: {hosts: 3}}}
"""
RAIL_REAL = """
name: rail
clock: {real: {dilation: 1000}}
fabric:
  topology: {rail: {servers: 2, gpus: 2, spines: 1}}
  cable: {rate: 40Gbps, delay: 1us}
"""


def run(*command: str, **more: object) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True, **more).stdout  # type: ignore[call-overload,no-any-return]


def cli(*args: str, code: int = 0, **more: object) -> str:
    """Runs the command line; returns what it printed on stdout."""
    done = subprocess.run([*TESTBED, *args], capture_output=True, text=True, cwd=ROOT, timeout=300, **more)  # type: ignore[call-overload]
    assert done.returncode == code, f"{args}: code {done.returncode}\n{done.stdout}\n{done.stderr}"
    return str(done.stdout)


def here(*args: str) -> subprocess.CompletedProcess[str]:
    """The command line in this process: to start is most of what a small command takes."""
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        try:
            commands.main(list(args))
        except SystemExit as ended:
            assert isinstance(ended.code, int)
            return subprocess.CompletedProcess(args, ended.code, out.getvalue(), err.getvalue())
    raise AssertionError(f"{args} did not end")


def told(*args: str, code: int = 0) -> str:
    """As `cli`, in this process."""
    done = here(*args)
    assert done.returncode == code, f"{args}: code {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def wait_until(condition: Callable[[], object], what: str, timeout: float = DEADLINE_S) -> None:
    """Looks again and again, and rests longer than a look takes: what is awaited needs the CPU."""
    end = time.monotonic() + timeout
    while True:
        began = time.monotonic()
        if condition():
            return
        ended = time.monotonic()
        assert ended < end, f"waited {timeout} s for: {what}"
        time.sleep(max(0.005, 3 * (ended - began)))


def traces(fabric_id: str) -> list[str]:
    """Everything on this machine that is the fabric's: empty after it is gone."""
    prefix = f"rb{fabric_id}-"
    found = [f"link {name}" for name in os.listdir("/sys/class/net") if name.startswith(prefix)]
    found += [f"process {pid}" for pid in marked(fabric_id)]
    for hierarchy in Path("/sys/fs/cgroup").iterdir():
        found += [f"cgroup {p}" for p in (hierarchy, *hierarchy.glob("*")) if p.name == f"railbed-{fabric_id}"]
    directory = Path("/run/railbed", fabric_id)
    found += [
        f"mount {line}" for line in Path("/proc/self/mountinfo").read_text().splitlines() if str(directory) in line
    ]
    found += [f"directory {directory}"] if directory.exists() else []
    return found


def marked(fabric_id: str) -> list[int]:
    """Pids of processes that have the fabric's mark in their environment, except zombies."""
    pids = []
    for name in os.listdir("/proc"):
        try:
            if f"RAILBED_FABRIC={fabric_id}-".encode() in Path("/proc", name, "environ").read_bytes():
                pids.append(int(name))
        except (OSError, ValueError):
            continue
    return pids


def fabric_ids() -> set[str]:
    try:
        return {name for name in os.listdir("/run/railbed") if not name.startswith(".")}
    except FileNotFoundError:
        return set()


def fabrics_begun_by(pid: int) -> list[str]:
    """Fabrics whose first owner was this process (others may run beside the tests)."""
    found = []
    for fabric_id in fabric_ids():
        try:
            first = json.loads(Path("/run/railbed", fabric_id, "journal").read_text().partition("\n")[0])
        except (OSError, ValueError):
            continue
        if first["pid"] == pid:
            found.append(fabric_id)
    return found


def addresses() -> str:
    """Addresses and routes of the root namespace."""
    return run("ip", "-o", "address") + run("ip", "route", "show", "table", "all")


@contextmanager
def strangers() -> Iterator[Callable[[], None]]:
    """A bridge, link, network namespace and process of others; yields a check that all are still there."""
    name = f"rbm{secrets.token_hex(3)}"
    shared().run("ovs-vsctl", "add-br", name, "--", "set", "Bridge", name, "datapath_type=netdev")
    run("ip", "link", "add", f"{name}a", "type", "veth", "peer", "name", f"{name}b")
    run("ip", "netns", "add", name)
    environment = {**os.environ, "RAILBED_FABRIC": "0000-somebody-else"}
    process = subprocess.Popen(["ip", "netns", "exec", name, "sleep", "600"], env=environment)

    def check() -> None:
        assert process.poll() is None
        assert name in shared().run("ovs-vsctl", "list-br").split()
        assert run("ip", "-o", "link", "show", f"{name}a")
        assert name in run("ip", "netns", "list")

    try:
        yield check
    finally:
        process.kill()
        process.wait()
        subprocess.run(["ip", "netns", "delete", name], check=False)
        subprocess.run(["ip", "link", "delete", f"{name}a"], check=False)
        shared().run("ovs-vsctl", "--if-exists", "del-br", name)


def assert_nothing_left(fabric_id: str) -> None:
    assert not Path("/run/railbed", fabric_id).exists()
    assert marked(fabric_id) == []
    assert [name for name in os.listdir("/sys/class/net") if name.startswith(f"rb{fabric_id}")] == []
