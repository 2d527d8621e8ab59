"""Programs that poll memory: wherever it lies, and whatever else they do with it, with signals and with children."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.fabricd.test_verbs_hostile import HEADER
from tests.parts.machine import ROOT
from tests.parts.rdma_programs import DEADLINE_S, Programs, programs_on

POLLED = """\
heap: as ever
stack: as ever
a thread's stack: as ever
the kernel: as ever
fork: as ever
caught
a handler: as ever
signals blocked: as ever
looked at 63
"""


def built(p: Programs, folder: Path) -> str:
    if not HEADER.is_file():
        pytest.skip("verbs' header is not there: ./setup.sh test installs it (libibverbs-dev)")
    program = folder / "polled"
    library = (f"-L{p.env['LD_LIBRARY_PATH']}", "-l:libibverbs.so.1")
    source = ROOT / "tests/parts/polled.c"
    subprocess.run(["cc", "-w", "-O1", "-pthread", "-o", program, source, *library], check=True)
    return str(program)


def test_what_is_polled_stays_the_programs(tmp_path: Path) -> None:
    with programs_on("star", {"hosts": 1}) as p:
        assert p.start(0, built(p, tmp_path)).communicate(timeout=DEADLINE_S)[0] == POLLED


def test_a_fault_that_handlers_hand_round_ends_the_program(tmp_path: Path) -> None:
    """Without the time library, as with the real clock, nobody stands between a program and its handlers."""
    with programs_on("star", {"hosts": 1}) as p:
        del p.env["LD_PRELOAD"]
        said, _ = p.start(0, built(p, tmp_path), "ring").communicate(timeout=DEADLINE_S)
    assert said == "handlers in a ring: Segmentation fault\n"
