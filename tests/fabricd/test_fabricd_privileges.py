"""fabricd gives up what it does not need once it has everything open, in every thread."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from hardware.client import FabricdError
from testbed.machine.processes import Process
from tests.parts.fabricd_fixture import bare_fabric, fabricd_binary, wait_until
from tests.parts.own_switch import USER

CLOCKS = [{"mode": "virtual"}, {"mode": "real", "dilation": 1000}]
RUN = """
import sys, time
from pathlib import Path
from hardware.client import Fabricd
config = {"fabric": "test", "clock": {"mode": "virtual"}, "switches": [], "nics": [], "cables": [], "scale_up": []}
config["fence_tap"] = "fence"
before = [*sys.argv[4:], "unshare", "--net"]
where, binary, user = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
fabricd = Fabricd.start(config, where, binary=binary, user=user, log=None, before=before)
print(fabricd.process.pid, flush=True)
sys.stdin.read()
"""


def status(pid: int | str, thread: str = "") -> dict[str, str]:
    folder = Path(f"/proc/{pid}", *(("task", thread) if thread else ()))
    return dict(re.findall(r"(\w+):[\t ]*(.*)", (folder / "status").read_text()))


def has_no_rights(said: dict[str, str], user: int) -> None:
    assert said["Uid"].split() == said["Gid"].split() == [str(user)] * 4
    assert said["Groups"] == ""
    assert {int(said[kind], 16) for kind in ("CapInh", "CapPrm", "CapEff", "CapAmb")} == {0}
    assert (said["NoNewPrivs"], said["Seccomp"]) == ("1", "2")


@pytest.mark.parametrize("clock", CLOCKS, ids=["virtual", "real"])
def test_a_running_fabricd_is_nobody_in_particular_and_has_no_rights(clock: dict[str, object], tmp_path: Path) -> None:
    with bare_fabric("star", {"hosts": 2}, clock=clock) as f:
        threads = os.listdir(f"/proc/{f.pid}/task")
        copies = len(os.sched_getaffinity(0)) > 1 and clock["mode"] == "virtual"
        assert len(threads) == 3 + copies  # two of them close files and unmap memory
        for thread in threads:
            has_no_rights(status(f.pid, thread), USER)


def test_what_it_writes_is_handed_to_it_open(tmp_path: Path) -> None:
    """So it may write into a folder into which it may not look."""
    with bare_fabric("star", {"hosts": 2}) as f:
        tmp_path.chmod(0o500)
        os.chown(tmp_path, 1000, 1000)
        capture, samples = tmp_path / "capture.pcapng", tmp_path / "samples"
        capture.write_bytes(b"x" * 100_000)
        f.fabricd.request("capture", port="h0:1", path=str(capture))
        f.fabricd.request("capture_stop", path=str(capture))
        assert 0 < capture.stat().st_size < 1000  # what was there before is gone
        f.fabricd.request("sample", path=str(samples), period_ns=1000)
        f.fabricd.request("sample_stop")
        again, files = tmp_path / "again", len(os.listdir(f"/proc/{f.pid}/fd"))
        for op, more in (("capture", {"port": "h9:1"}), ("sample", {"period_ns": 1})):
            with pytest.raises(FabricdError, match="no such port|from 100"):
                f.fabricd.request(op, path=str(again), **more)
            assert not again.exists()
            with pytest.raises(FabricdError, match="was not handed over"):
                f.fabricd.answer(f.fabricd.ask(op, path=str(again), port="h0:1", period_ns=1000))
        assert len(os.listdir(f"/proc/{f.pid}/fd")) == files


def test_it_still_ends_with_who_has_started_it(tmp_path: Path) -> None:
    """The kernel forgets that wish of a process that changes its user."""
    arguments = [sys.executable, "-c", RUN, str(tmp_path), str(fabricd_binary()), str(USER)]
    arguments += ["setpriv", "--pdeathsig", "KILL"]
    with subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as starter:
        assert starter.stdout is not None
        pid = int(starter.stdout.readline())
        has_no_rights(status(pid), USER)
        fabricd = Process.of(pid)
        starter.kill()
    try:
        wait_until(lambda: not fabricd.alive(), "fabricd to end")
    finally:
        fabricd.signal(9)


def test_where_proc_hides_processes_it_stays_root_without_capabilities(tmp_path: Path) -> None:
    """It has to see whether who is waited for still runs."""
    script = 'mount -t proc -o hidepid=2 proc /proc && exec "$@"'
    before = ["unshare", "--mount", "sh", "-c", script, "sh"]
    arguments = [*before, sys.executable, "-c", RUN, str(tmp_path), str(fabricd_binary()), str(USER)]
    with subprocess.Popen(
        arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as starter:
        assert starter.stdout is not None
        pid = int(starter.stdout.readline())
        has_no_rights(status(pid), 0)
        os.kill(pid, 15)
        assert "hides others' processes" in starter.communicate()[1]
