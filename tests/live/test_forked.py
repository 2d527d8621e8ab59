"""Programs that are forked for tests (tests/parts/forked.py) are as those that are started, and end as they do."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.parts import forking
from tests.parts.machine import ROOT, TESTBED, wait_until

PROGRAM = """
import json, os, signal, sys, threading
def proc(name):
    return open(f"/proc/self/{name}").read()
said = {
    "argv": sys.argv[1:], "name": __name__, "folder": os.getcwd(), "path": sys.path[0], "environment": dict(os.environ),
    "cmdline": proc("cmdline").rstrip("\\0").split("\\0")[-4:], "mine": "MINE=1" in proc("environ").split("\\0"),
    "descriptors": sorted(name for name in os.listdir("/proc/self/fd") if os.path.exists(f"/proc/self/fd/{name}")),
    "group": os.getpgrp() == os.getpid(), "session": os.getsid(0) == os.getpid(),
    "blocked": [int(n) for n in signal.pthread_sigmask(signal.SIG_BLOCK, ())], "input": sys.stdin.read(),
    "streams": [[s.encoding, s.errors, s.line_buffering, s.write_through] for s in (sys.stdout, sys.stderr)],
}
print(json.dumps(said))
print("aside", file=sys.stderr)
threading.Thread(target=lambda: print("at the end")).start()
sys.exit(int(sys.argv[1]))
"""


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A module in this folder that `subprocess` may have forked, if `forkable` says so."""
    (tmp_path / "told.py").write_text(PROGRAM)
    (tmp_path / "waits.py").write_text("import time\nprint('waits', flush=True)\ntime.sleep(600)\n")
    yield str(tmp_path)


def forkable(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    for name in names:
        monkeypatch.setitem(forking.MODULES, name, ())


def parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


@pytest.mark.parametrize("session", [False, True])
def test_what_it_is_and_says(program: str, monkeypatch: pytest.MonkeyPatch, session: bool) -> None:
    def told() -> tuple[object, ...]:
        read, write = os.pipe()
        try:
            done = subprocess.run(
                [sys.executable, "-m", "told", "7", "a b"], input="typed", capture_output=True, text=True, cwd=program,
                env={**os.environ, "MINE": "1"}, start_new_session=session, pass_fds=[write],
            )  # fmt: skip
        finally:
            os.close(read)
            os.close(write)
        first, _, rest = done.stdout.partition("\n")
        return json.loads(first), rest, done.stderr, done.returncode

    started = told()
    forkable(monkeypatch, "told")
    forked = told()
    asks = set(forked[0]["descriptors"]) - set(started[0]["descriptors"])  # type: ignore[index]
    assert len(asks) == 1, "by which it may ask"
    forked[0]["descriptors"] = started[0]["descriptors"]  # type: ignore[index]
    assert [key for key, value in started[0].items() if forked[0][key] != value] == []  # type: ignore[index,attr-defined]
    assert forked == started and started[1:] == ("at the end\n", "aside\n", 7)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL, signal.SIGINT])
def test_how_it_ends(program: str, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    forkable(monkeypatch, "waits")
    with subprocess.Popen([sys.executable, "-m", "waits"], cwd=program, stdout=-1, stderr=-1) as waits:
        assert waits.stdout and waits.stdout.readline() == b"waits\n" and waits.poll() is None
        assert parent(waits.pid) != os.getpid(), "it is forked"
        with pytest.raises(subprocess.TimeoutExpired):
            waits.wait(0.01)
        waits.send_signal(number)
        assert waits.wait() == waits.returncode == waits.poll() == -number


def test_it_ends_with_whoever_has_started_it_if_it_is_tied_to_that(
    program: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    forkable(monkeypatch, "waits")
    heard, says = os.pipe()
    if (owner := os.fork()) == 0:
        try:
            command = ["setpriv", "--pdeathsig", "KILL", sys.executable, "-m", "waits"]
            waits = subprocess.Popen(command, cwd=program, stdout=subprocess.PIPE)
            assert waits.stdout and waits.stdout.readline()
            os.write(says, str(waits.pid).encode())
            signal.pause()
        finally:
            os._exit(1)
    os.close(says)
    with open(heard, "rb", buffering=0) as from_owner:
        pid = int(from_owner.read(16))
    assert Path(f"/proc/{pid}").exists()
    os.kill(owner, signal.SIGKILL)
    os.waitpid(owner, 0)
    wait_until(lambda: not Path(f"/proc/{pid}").exists(), "its end")


def test_the_command_is_forked_and_says_what_one_that_is_started_says() -> None:
    alike = [
        subprocess.run([*before, *TESTBED, "run", "none.yaml"], cwd=ROOT, capture_output=True, text=True)
        for before in ([], ["env"])  # env is started, and starts it
    ]
    assert alike[0].stderr == alike[1].stderr and alike[0].returncode == alike[1].returncode == 2
