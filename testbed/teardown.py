"""Removes links, control groups and mounts of a fabric, fast.

Unregistering a network device, and closing a packet socket as Open vSwitch has one on each of its ports, waits for an
RCU grace period (10 to 20 ms). Two things make a hundred of them bearable: links that share a link group are deleted
in one operation with one grace period, and while somebody holds the kernel's RTNL lock, grace periods are expedited.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

from testbed.processes import Process, wait_for

_NET = Path("/sys/class/net")


def links(prefix: str) -> list[str]:
    """Our links in the root namespace, by their names' prefix."""
    return [name for name in os.listdir(_NET) if name.startswith(prefix)]


def delete_links(group: int, prefix: str, also: Sequence[str] = ()) -> None:
    """Deletes the links of a group (and those in `also`, which need not be there) at once, but no stranger's."""
    present = [name for name in also if (_NET / name).exists()]
    if present:
        batch = "".join(f"link set dev {name} group {group}\n" for name in present)
        _ip(["-force", "-batch", "-"], batch)
    members = [name for name in os.listdir(_NET) if _group(name) == group]
    if not members:
        return
    if all(name.startswith(prefix) for name in members):
        _ip(["link", "delete", "group", str(group)])
    else:  # a stranger is in our group: one by one, without it
        _ip(["-force", "-batch", "-"], "".join(f"link delete dev {n}\n" for n in members if n.startswith(prefix)))


def _group(link: str) -> int:
    try:
        return int((_NET / link / "netdev_group").read_text()) & 0xFFFFFFFF
    except (OSError, ValueError):
        return 0


def _ip(args: Sequence[str], batch: str | None = None) -> None:
    subprocess.run(["ip", *args], input=batch, text=True, capture_output=True, check=False)


def wait_for_links(prefix: str, timeout: float) -> list[str]:
    """Waits until none is left; returns those that are."""
    wait_for(lambda: not links(prefix), timeout)
    return links(prefix)


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
        for procs in path.rglob("cgroup.procs"):
            with suppress(OSError):
                for pid in procs.read_text().split():
                    with suppress(ProcessLookupError):
                        found.add(Process.of(int(pid)))
    return found


def remove_control_groups(name: str, errors: list[str]) -> int:
    """Removes them, children first; returns how many there were."""
    count = 0
    for path in list(control_group_paths(name)):
        for group in sorted((d for d in [path, *path.rglob("*")] if d.is_dir()), key=lambda d: -len(d.parts)):
            count += 1
            if not wait_for(partial(_rmdir, group), timeout=5):  # busy while its last process goes away
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


# -- grace periods


@contextmanager
def short_grace_periods(active: bool = True) -> Iterator[None]:
    """Keeps the RTNL lock busy meanwhile (in a namespace of its own), so that everybody's grace periods are short."""
    if not active:
        yield
        return
    helper = subprocess.Popen(
        [sys.executable, "-I", "-S", str(Path(__file__).with_name("rtnl_busy.py"))],
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip
    try:
        yield
    finally:
        helper.send_signal(signal.SIGKILL)
        helper.wait()
