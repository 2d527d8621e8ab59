"""Removes control groups and mounts of a fabric. Its devices go with its network namespaces."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

from testbed.machine.processes import Process, existing, wait_for

GONE_S = 60.0
"""How long a process may take to be gone, with its connections and control group, or to stand still: it needs a CPU."""

# -- control groups


def control_group_paths(name: str) -> Iterator[Path]:
    """The directory of this name in every mounted hierarchy that has it."""
    for root, kind, _ in mounts():
        if kind in ("cgroup", "cgroup2") and (root / name).is_dir():
            yield root / name


def in_control_groups(name: str) -> set[Process]:
    """All processes below that name in any hierarchy."""
    pids = set[int]()  # each is in all hierarchies
    for path in control_group_paths(name):
        for group, _, _ in os.walk(path):
            with suppress(OSError):
                pids.update(map(int, Path(group, "cgroup.procs").read_text().split()))
    return existing(pids)


def remove_control_groups(name: str, errors: list[str]) -> int:
    """Removes them, children first; returns how many there were."""
    count = 0
    for path in list(control_group_paths(name)):
        for group, _, _ in os.walk(path, topdown=False):
            count += 1
            if not wait_for(partial(_rmdir, Path(group)), timeout=GONE_S):  # busy while its last process goes away
                errors.append(f"control group {group} is busy")
    return count


def _rmdir(path: Path) -> bool:
    try:
        path.rmdir()
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True


# -- mounts


def unmount_below(directory: Path, errors: list[str]) -> int:
    """Unmounts what is mounted below a directory, innermost first; returns how many."""
    below = [str(point) for point, _, _ in mounts() if directory in point.parents]
    libc = ctypes.CDLL(None, use_errno=True)
    for point in sorted(below, key=len, reverse=True):
        if libc.umount2(point.encode(), 2) != 0:  # MNT_DETACH
            errors.append(f"cannot unmount {point}: {os.strerror(ctypes.get_errno())}")
    return len(below)


def mounts() -> Iterator[tuple[Path, str, str]]:
    """Each mount of this namespace: where, its file system, that one's options (proc_pid_mountinfo(5))."""
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        before, _, after = line.partition(" - ")
        kind, _, options = after.split()[:3]
        yield Path(before.split()[4].encode().decode("unicode_escape")), kind, options
