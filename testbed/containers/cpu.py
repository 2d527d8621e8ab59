"""What a container has had of the CPUs, as its control group and its tasks say (cpu.stat, /proc/PID/schedstat)."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from testbed.machine.teardown import control_group_paths, in_control_groups


@dataclass(frozen=True)
class Cpu:
    """Since the container began; times are wall time."""

    periods: int
    """In which it wanted a CPU while it had a quota."""
    throttled: int
    """Of them those in which the quota was used up."""
    throttled_ns: int
    ran_ns: int
    """Of the tasks that are there now."""
    waited_ns: int
    """Of the same: ready to run, and no CPU was given."""


def cpu_of(group: str) -> Cpu:
    """Of a control group by its name below the root of each hierarchy; all zero if there is none."""
    stat: dict[str, int] = {}
    for path in control_group_paths(group):
        with suppress(OSError, ValueError):
            told = dict(line.split() for line in (path / "cpu.stat").read_text().splitlines())
            if "nr_periods" in told:
                stat = {key: int(value) for key, value in told.items()}
    throttled_ns = stat.get("throttled_time", 1000 * stat.get("throttled_usec", 0))  # cgroup 1, cgroup 2
    times = [_schedstat(path) for process in in_control_groups(group) for path in _tasks(process.pid)]
    return Cpu(
        stat.get("nr_periods", 0), stat.get("nr_throttled", 0), throttled_ns,
        sum(ran for ran, _ in times), sum(waited for _, waited in times),
    )  # fmt: skip


def _tasks(pid: int) -> list[Path]:
    with suppress(OSError):
        return list(Path(f"/proc/{pid}/task").iterdir())
    return []


def _schedstat(task: Path) -> tuple[int, int]:
    """Time on a CPU and time ready without one, in ns (proc(5), Documentation/scheduler/sched-stats)."""
    with suppress(OSError, ValueError):
        ran, waited, _ = (task / "schedstat").read_text().split()
        return int(ran), int(waited)
    return 0, 0
