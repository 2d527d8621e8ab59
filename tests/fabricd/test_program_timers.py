"""Timers of programs on the virtual clock: what their man pages say, at exactly the time that they say."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from hardware.config import Hardware
from tests.parts.machine import ROOT
from tests.parts.rdma_programs import DEADLINE_S, numbers, programs_on, require

EXPECTED = """\
alarm 0
sleep interrupted 3000000 left 7
alarm was 5
interval 4 in 7000, next in 2000
then none 4
timer 1 value 42 after 500 of 501, EINTR with 1500 left
absolute after 1000000, poll EINTR
deleted -1
too early EAGAIN
epoll 1 after 3000
read 8 count 3
blocking read 8 count 1 after 3000
"""


def test_timers_are_due_when_they_say(tmp_path: Path) -> None:
    """The kernel's own timers say the same words, where the machine has time for them; only its times are longer."""
    program = tmp_path / "timers"
    subprocess.run(["cc", "-O1", "-o", program, ROOT / "tests/parts/timers.c"], check=True)
    with programs_on("star", {"hosts": 2}) as p:
        said, _ = p.start(0, str(program)).communicate(timeout=DEADLINE_S)
    assert said == EXPECTED


def test_perftest_runs_for_as_long_as_it_is_told() -> None:
    """One second by its alarm, on slow cables: so many messages of 64 KiB."""
    require("ib_send_bw")
    with programs_on("star", {"hosts": 2}, Hardware(cable_rate_bps=2e8)) as p:
        _, client = p.pair("ib_send_bw", "-F", "-D", "1", "-f", "0", "-s", "65536")
    ((_, messages, _, average, _),) = numbers(client)
    assert average == pytest.approx(46_737 / 2000, rel=0.02)
    assert messages == pytest.approx(average * 16, rel=0.02)
