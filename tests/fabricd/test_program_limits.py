"""Threads that wait for each other with a limit, on the virtual clock: by their man pages, at exactly the time that they say."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.parts.machine import ROOT
from tests.parts.rdma_programs import DEADLINE_S, programs_on

ALONE = """\
condition ETIMEDOUT after 7000
condition, past ETIMEDOUT after 0
condition, no time EINVAL after 0
condition, monotonic ETIMEDOUT after 6000
condition, clock ETIMEDOUT after 5000
mutex ETIMEDOUT after 4000
semaphore ETIMEDOUT after 3000
semaphore, past 0 after 0
writer ETIMEDOUT after 2000
cnd ETIMEDOUT after 1000
mtx ETIMEDOUT after 1000
"""
TOGETHER = """\
signalled 0 after 3000
its end 0 after 0
too late ETIMEDOUT after 5000
its end 0 after 15000
computed 0 after 0
its end 0 after 0
mutex of another ETIMEDOUT after 2000
reader ETIMEDOUT after 3000
thread ETIMEDOUT after 1000
mutex of another 0 after 3000
thread 0 after 0
3000 wakes at 3000
5000 wakes at 5000
3000 wakes at 6000
3000 wakes at 9000
5000 wakes at 10000
5000 wakes at 15000
"""


def test_limits_are_over_when_they_say(tmp_path: Path) -> None:
    """Without the virtual clock the words are the same, but for what is computed: that takes time there.

    First there is one thread, then there are two, then one that is not the only one any more.
    """
    program = tmp_path / "limits"
    subprocess.run(["cc", "-D_GNU_SOURCE", "-O1", "-pthread", "-o", program, ROOT / "tests/parts/limits.c"], check=True)
    with programs_on("star", {"hosts": 2}) as p:
        said, _ = p.start(0, str(program)).communicate(timeout=DEADLINE_S)
    assert said == ALONE + TOGETHER + ALONE
