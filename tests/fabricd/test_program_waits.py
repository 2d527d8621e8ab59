"""What programs wait for on the virtual clock beside their NIC: other threads, signals, children.

Each by its man page, at exactly the time that it says.
"""

from __future__ import annotations

import sys
from pathlib import Path

from tests.parts.machine import ROOT
from tests.parts.rdma_programs import DEADLINE_S, compiled, numbers, programs_on, require

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


SIGNALS = """\
poll, blocked over, 0
ppoll, blocked over, 0
ppoll, let in EINTR, 1
pselect, let in EINTR, 1
epoll_pwait, let in EINTR, 1
ppoll, ready first ready, 0
ppoll, then EINTR, 1
poll, from elsewhere EINTR, 1
nanosleep, from elsewhere EINTR, 1
left 700
"""
CHILDREN = """\
slept 1000
a program 5000
one that knows no time 0
a shell 5000
system 4000
popen 3000
fork 6000
a pipe 7000
and its end 0
a signal 2000
its end was that 0
"""

COME_BETWEEN = """\
a handler sleeps: EINTR after 11
a handler waits: 0
a handler forks: 5
free locks: 0 EINVAL EINVAL EINVAL 0
many threads: over
"""


def test_limits_are_over_when_they_say(tmp_path: Path) -> None:
    """Without the virtual clock the words are the same.

    First there is one thread, then there are two, then one that is not the only one any more.
    """
    with programs_on("star", {"hosts": 2}) as p:
        said, _ = p.start(0, compiled(tmp_path, "limits")).communicate(timeout=DEADLINE_S)
    assert said == ALONE + TOGETHER + ALONE


def test_signals_are_let_in_by_the_mask_that_is_given(tmp_path: Path) -> None:
    """The kernel says the same words; what is left of the 1000 s is its own there."""
    with programs_on("star", {"hosts": 2}) as p:
        said, _ = p.start(0, compiled(tmp_path, "signals")).communicate(timeout=DEADLINE_S)
    assert said == SIGNALS


def test_waits_that_handlers_forks_and_other_threads_come_between(tmp_path: Path) -> None:
    """The kernel says the same words. A handler comes at any instruction, and has to have what it asks for."""
    with programs_on("star", {"hosts": 2}) as p:
        said, _ = p.start(0, compiled(tmp_path, "keeper")).communicate(timeout=DEADLINE_S)
    assert said == COME_BETWEEN


def test_who_waits_for_a_child_is_as_far_as_the_child_when_it_ends() -> None:
    """Last, each has a child with a NIC; a parent that stood still would stop both."""
    require("ib_send_lat")
    script = [sys.executable, "-S", str(ROOT / "tests/parts/children.py")]
    with programs_on("star", {"hosts": 2}) as p:
        server = p.start(0, *script, "ib_send_lat -F -n 20")
        p.listens(0)
        client = p.start(1, *script, "ib_send_lat -F -n 20 10.0.0.1")
        said = [each.communicate(timeout=DEADLINE_S)[0] for each in (server, client)]
    assert [each.returncode for each in (server, client)] == [0, 0], said
    assert all(each.startswith(CHILDREN) for each in said), said
    assert len(numbers(said[1])) == 1
