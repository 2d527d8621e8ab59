"""Removes control groups and mounts of a fabric. Its devices go with its network namespaces."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

from testbed.machine.processes import Process, wait_for

GONE_S = 60.0
"""How long a process may take to be gone, with its connections and control group, or to stand still: it needs a CPU."""

# -- control groups


def control_group_paths(name: str) -> Iterator[Path]:
    """The directory of this name in every mounted hierarchy that has it."""
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        before, _, after = line.partition(" - ")
        if after.split()[0] in ("cgroup", "cgroup2"):
            path = Path(before.split()[4], name)
            if path.is_dir():
                yield path


def in_control_groups(name: str) -> set[Process]:
    """All processes below that name in any hierarchy."""
    found = set()
    for path in control_group_paths(name):
        for group, _, _ in os.walk(path):
            with suppress(OSError):
                for pid in Path(group, "cgroup.procs").read_text().split():
                    with suppress(ProcessLookupError):
                        found.add(Process.of(int(pid)))
    return found


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
    below = [p for p in _mount_points() if p != str(directory) and Path(p).is_relative_to(directory)]
    libc = ctypes.CDLL(None, use_errno=True)
    for point in sorted(below, key=len, reverse=True):
        if libc.umount2(point.encode(), 2) != 0:  # MNT_DETACH
            errors.append(f"cannot unmount {point}: {os.strerror(ctypes.get_errno())}")
    return len(below)


def _mount_points() -> list[str]:
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    return [line.split()[4].encode().decode("unicode_escape") for line in lines]
