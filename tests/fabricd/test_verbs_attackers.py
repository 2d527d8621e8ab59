"""Threads that meet in the same queue pair or channel, and programs that take a device's descriptors elsewhere."""

from __future__ import annotations

from pathlib import Path

from tests.parts.fabricd_fixture import bare_fabric
from tests.parts.rdma_programs import DEADLINE_S, Programs, compiled, programs_on

CASES = ("threads", "two listen", "destroyed", "stale", "acknowledged", "nobody listens", "cancelled", "duplicated",
         "another program", "both go on")  # fmt: skip
SAID = "".join(f"{case}: as ever\n" for case in CASES)


def test_each_goes_on_as_the_manuals_say(tmp_path: Path) -> None:
    with programs_on("star", {"hosts": 2}) as p:
        said, _ = p.start(0, compiled(tmp_path, "attackers")).communicate(timeout=2 * DEADLINE_S)
    assert said == SAID


def test_with_the_real_clock_too(tmp_path: Path) -> None:
    with bare_fabric("star", {"hosts": 2}, clock={"mode": "real", "dilation": 1000}) as f:
        programs = Programs(f, virtual=False)
        try:
            said, _ = programs.start(0, compiled(tmp_path, "attackers")).communicate(timeout=2 * DEADLINE_S)
        finally:
            programs.end()
    assert said == SAID
