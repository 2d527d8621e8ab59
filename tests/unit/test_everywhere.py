"""One command at all ranks: its output, its code, and that nothing of it goes on.  Here they run in no container."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from io import BytesIO
from subprocess import DEVNULL
from types import SimpleNamespace
from typing import Any

import pytest

from testbed.experiment import loads
from testbed.live import everywhere
from tests.parts.machine import wait_until


class Started(subprocess.Popen[bytes]):
    """A program without a container."""

    starting = False


class FakeLab:
    """Three ranks on this machine."""

    kernel = False

    def __init__(self) -> None:
        self.fabric = loads("name: t\nfabric: {topology: {star: {hosts: 3}}}\nworkload: []\n").build_fabric()

    def execute(self, rank: int, argv: Sequence[str], told: Mapping[str, str], *, stdout: int, stderr: int) -> Started:
        return Started(list(argv), env={**os.environ, **told}, stdin=DEVNULL, stdout=stdout, stderr=stderr)


class Written:
    """Standard output; `fails`: nobody reads it."""

    def __init__(self, fails: bool = False) -> None:
        self.bytes, self.fails = BytesIO(), fails

    def write(self, data: bytes) -> None:
        if self.fails:
            raise BrokenPipeError(32, "Broken pipe")
        self.bytes.write(data)

    def flush(self) -> None:
        pass


def execute(monkeypatch: pytest.MonkeyPatch, line: str, out: Written | None = None) -> tuple[int, list[str]]:
    """Code and lines of a line for sh at each rank."""
    out = out or Written()
    with monkeypatch.context() as its:
        its.setattr(sys, "stdout", SimpleNamespace(buffer=out))
        lab: Any = FakeLab()
        code = everywhere.execute(lab, ["sh", "-c", line])
    return code, sorted(out.bytes.getvalue().decode().splitlines())


def sleepers(seconds: str) -> list[str]:
    return subprocess.run(["pgrep", "-f", f"^sleep {seconds}"], capture_output=True, text=True).stdout.split()


@pytest.fixture
def seconds() -> str:
    """A time to sleep that nobody else sleeps."""
    return f"99.{os.getpid()}"


def test_lines_have_their_rank_before_them(monkeypatch: pytest.MonkeyPatch) -> None:
    assert execute(monkeypatch, "echo $WORLD_SIZE; printf end") == (
        0,
        [f"[{r}] {x}" for r in range(3) for x in ("3", "end")],
    )


def test_a_rank_that_fails_is_noticed_while_its_child_prints_on(monkeypatch: pytest.MonkeyPatch, seconds: str) -> None:
    """The others are ended with all that they have started."""
    line = f"if [ $RANK = 1 ]; then sleep {seconds} & exit 3; else sleep {seconds} | cat; fi"
    assert execute(monkeypatch, line)[0] == 3
    wait_until(lambda: not sleepers(seconds), "the end of what the ranks started")


def test_who_does_not_want_to_end_is_killed(monkeypatch: pytest.MonkeyPatch, seconds: str) -> None:
    monkeypatch.setattr(everywhere, "GRACE_S", 0.3)
    line = f"if [ $RANK = 1 ]; then exit 3; else trap '' TERM; sleep {seconds}; fi"
    assert execute(monkeypatch, line)[0] == 3
    wait_until(lambda: not sleepers(seconds), "the end of what the ranks started")


def test_if_nobody_reads_all_is_ended(monkeypatch: pytest.MonkeyPatch, seconds: str) -> None:
    with pytest.raises(BrokenPipeError):
        execute(monkeypatch, f"echo hello; sleep {seconds}", Written(fails=True))
    wait_until(lambda: not sleepers(seconds), "the end of what the ranks started")


def test_what_a_program_leaves_behind_is_not_waited_for(monkeypatch: pytest.MonkeyPatch, seconds: str) -> None:
    monkeypatch.setattr(everywhere, "GRACE_S", 0.3)
    try:
        assert execute(monkeypatch, f"echo hello; sleep {seconds} &") == (0, [f"[{r}] hello" for r in range(3)])
        wait_until(lambda: len(sleepers(seconds)) == 3, "what was left behind")
    finally:
        for pid in sleepers(seconds):
            os.kill(int(pid), 9)
