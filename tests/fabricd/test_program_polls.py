"""Programs that poll memory: wherever it lies, and whatever else they do with it, with signals and with children."""

from __future__ import annotations

from pathlib import Path

from tests.parts.rdma_programs import DEADLINE_S, compiled, programs_on

POLLED = """\
heap: as ever
stack: as ever
a thread's stack: as ever
the kernel: as ever
fork: as ever
caught
a handler: as ever
signals blocked: as ever
a handler writes: as ever
looked at 64
"""


def test_what_is_polled_stays_the_programs(tmp_path: Path) -> None:
    with programs_on("star", {"hosts": 1}) as p:
        assert p.start(0, compiled(tmp_path, "polled")).communicate(timeout=DEADLINE_S)[0] == POLLED


def test_a_fault_that_handlers_hand_round_ends_the_program(tmp_path: Path) -> None:
    """Without the time library, as with the real clock, nobody stands between a program and its handlers."""
    with programs_on("star", {"hosts": 1}) as p:
        del p.env["LD_PRELOAD"]
        said, _ = p.start(0, compiled(tmp_path, "polled"), "ring").communicate(timeout=DEADLINE_S)
    assert said == "handlers in a ring: Segmentation fault\n"
