"""A control group that limits the memory of one process of a fabric, in control groups of version 1 or 2.

Memory that a worker shares with fabricd is charged to whoever touches it first: without a limit of fabricd's own, a
worker could have all of the machine's.
"""

from __future__ import annotations

from pathlib import Path

from testbed.machine.teardown import mounts

_VMSTAT = Path("/proc/vmstat")


def limit(name: str, pid: int, limit_bytes: int) -> bool:
    """Moves the process into the group `name` (two levels) with that limit; False where the machine has none."""
    for root, version in _hierarchies():
        try:
            _enable(root, version)
            folder = root / name
            folder.parent.mkdir(exist_ok=True)
            _enable(folder.parent, version)
            folder.mkdir(exist_ok=True)
            (folder / ("memory.max" if version == 2 else "memory.limit_in_bytes")).write_text(str(limit_bytes))
            (folder / "cgroup.procs").write_text(str(pid))
        except OSError:
            continue
        return True
    return False


def _hierarchies() -> list[tuple[Path, int]]:
    """Where groups for memory are, and of which version."""
    hierarchies = []
    for root, kind, options in mounts():
        if kind == "cgroup" and "memory" in options.split(","):
            hierarchies.append((root, 1))
        elif kind == "cgroup2" and "memory" in (root / "cgroup.controllers").read_text().split():
            hierarchies.append((root, 2))
    return hierarchies


def _enable(folder: Path, version: int) -> None:
    if version == 2:
        (folder / "cgroup.subtree_control").write_text("+memory")


def available_bytes() -> int | None:
    """Memory that new processes can have without swapping; None where the machine does not say."""
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return None


def killed_for_want() -> int:
    """How many processes the kernel has ended since it began, as there was no memory left for them or their group."""
    return next((int(line.split()[1]) for line in _VMSTAT.read_text().splitlines() if line.startswith("oom_kill ")), 0)
