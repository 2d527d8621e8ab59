"""Processes that are found by what is in their environment, and those of the kernel, which nobody looks into."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from testbed.machine.processes import MARK, Process, belonging, carrying, every

KERNEL_THREAD = 0x200000  # PF_KTHREAD of linux/sched.h


def test_a_process_is_found_by_its_whole_mark() -> None:
    mark = f"test-{os.getpid()}"
    environments = ({MARK: mark}, {"A": "1", MARK: mark, "Z": "1"}, {MARK: mark + "0"}, {"A": f"{MARK}={mark}"})
    children = [subprocess.Popen(["cat"], env=one, stdin=subprocess.PIPE) for one in environments]
    try:
        wanted = {Process.of(child.pid) for child in children[:2]}
        assert belonging(mark, ()) == carrying(MARK, mark) == wanted
        assert belonging(mark[:-1], ()) == belonging(mark[1:], ()) == set()
    finally:
        for child in children:
            child.communicate()


def test_a_long_environment_is_read_to_its_end() -> None:
    mark = f"test-{os.getpid()}-long"
    environment = {**{f"V{number}": "x" * 100_000 for number in range(4)}, MARK: mark}
    child = subprocess.Popen(["cat"], env=environment, stdin=subprocess.PIPE)
    try:
        assert belonging(mark, ()) == {Process.of(child.pid)}
    finally:
        child.communicate()


def test_all_are_there_but_the_kernels_own() -> None:
    before, found, after = kernel_threads(), set(every()), kernel_threads()
    assert {os.getpid(), os.getppid()} - {0} <= found
    assert not found & before & after  # some come and go


def kernel_threads() -> set[int]:
    """But for that which starts the others."""
    found = set()
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            fields = Path("/proc", name, "stat").read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if int(fields[6]) & KERNEL_THREAD and name != "2":
            found.add(int(name))
    return found
