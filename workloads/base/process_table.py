"""What /proc says of processes that are led by ours: what they use, and whether they listen."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from contextlib import suppress

_LISTEN = "0A"  # of /proc/net/tcp


def cpu_ticks(groups: Collection[int]) -> int:
    """The CPU time that the processes of these process groups have used, as far as they are there."""
    total = 0
    for _, fields in _stats():
        if int(fields[2]) in groups:
            total += sum(map(int, fields[11:15]))
    return total


def listens(group: int) -> bool:
    """Whether a process of this process group has a TCP socket that listens."""
    listening = set(_listening())
    return any(int(fields[2]) == group and listening.intersection(_sockets(pid)) for pid, fields in _stats())


def _stats() -> Iterator[tuple[int, list[str]]]:
    """Of each process the fields of proc_pid_stat(5) from the state on: state, parent, process group, .."""
    for name in os.listdir("/proc"):
        if name.isdecimal():
            with suppress(OSError), open(f"/proc/{name}/stat", encoding="ascii", errors="replace") as file:
                yield int(name), file.read().rpartition(")")[2].split()


def _listening() -> Iterator[str]:
    """The inodes of sockets that listen."""
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        with suppress(OSError), open(table, encoding="ascii") as file:
            for line in file.readlines()[1:]:
                words = line.split()
                if words[3] == _LISTEN:
                    yield f"socket:[{words[9]}]"


def _sockets(pid: int) -> Iterator[str]:
    folder = f"/proc/{pid}/fd"
    with suppress(OSError):
        for name in os.listdir(folder):
            with suppress(OSError):
                yield os.readlink(f"{folder}/{name}")
