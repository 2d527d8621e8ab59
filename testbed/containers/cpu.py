"""What a container has had of the CPUs: cpu.stat of its control group (version 1: cpuacct.usage, too), and
/proc/PID/schedstat of its tasks."""

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
    """Of all tasks, those that have ended as well."""
    waited_ns: int
    """Of the tasks that are there now: ready to run, and no CPU was given."""


def cpu_of(group: str) -> Cpu:
    """Of a control group by its name below the root of each hierarchy; all zero if there is none."""
    stat: dict[str, int] = {}
    ran_ns = 0
    for path in control_group_paths(group):
        with suppress(OSError, ValueError):
            values = dict(line.split() for line in (path / "cpu.stat").read_text().splitlines())
            ran_ns = max(ran_ns, 1000 * int(values.get("usage_usec", 0)))
            if "nr_periods" in values:
                stat = {key: int(value) for key, value in values.items()}
        with suppress(OSError, ValueError):
            ran_ns = max(ran_ns, int((path / "cpuacct.usage").read_text()))
    throttled_ns = stat.get("throttled_time", 1000 * stat.get("throttled_usec", 0))  # cgroup 1, cgroup 2
    waited_ns = sum(_waited_ns(path) for process in in_control_groups(group) for path in _tasks(process.pid))
    return Cpu(stat.get("nr_periods", 0), stat.get("nr_throttled", 0), throttled_ns, ran_ns, waited_ns)


def _tasks(pid: int) -> list[Path]:
    with suppress(OSError):
        return list(Path(f"/proc/{pid}/task").iterdir())
    return []


def _waited_ns(task: Path) -> int:
    """Time ready without a CPU (Documentation/scheduler/sched-stats)."""
    with suppress(OSError, ValueError):
        _, waited, _ = (task / "schedstat").read_text().split()
        return int(waited)
    return 0
