"""Where a run's wall time goes: its stages, and what the fabric's processes did from the workers' start to their end.

Processes run at the same time, so their processor times add up to more than the wall time on a machine with several
cores. The one that is busy all the time is the one that the run waits for.
"""

from __future__ import annotations

import resource
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hardware.client import FabricdError
from testbed.containers import forked

if TYPE_CHECKING:
    from testbed.fabric.lab import Lab

FILE = "profile.json"
COPIES = "copies"  # the thread's name (hardware/fabricd/base/copies.c)
PLANNING, BRING_UP, START, WORKLOAD, COUNTERS, TEAR_DOWN = (
    "planning",
    "bring-up",
    "starting the workers",
    "workload",
    "reading the counters",
    "tear-down",
)


class Profile:
    """Of one run. If it was not asked for (`on`), it notes stages and nothing else."""

    def __init__(self, on: bool = False) -> None:
        self.on = on
        self._began: list[tuple[str, float]] = []
        self._before: dict[str, float] = {}
        self._after: dict[str, float] = {}
        self._samples: dict[int, int] = {}
        self._copies = 0.0

    def stage(self, name: str) -> None:
        """Another stage begins."""
        self._began.append((name, time.monotonic()))

    def begin(self, lab: Lab) -> None:
        """The workers are about to be started."""
        self.stage(START)
        if self.on:
            self._samples = _samples(lab)
            self._before = _processor_s(lab)
            self._copies = -_copies_s(lab)

    def end(self, lab: Lab) -> None:
        """All workers have ended."""
        self.stage(COUNTERS)
        if not self.on:
            return
        with suppress(FabricdError, OSError):  # it may be why the run has failed
            self._after = _processor_s(lab)
            self._copies += _copies_s(lab)
            before, self._samples = self._samples, {}
            self._samples = {at: count - before.get(at, 0) for at, count in _samples(lab).items()}

    def to_dict(self) -> dict[str, Any]:
        """`stages`: wall time; `busy`: processor time from the workers' start to their end; `fabricd`: its, by room.

        Samples are of fabricd's event loop alone; what its thread `copies` took stands beside them.
        """
        from hardware.rooms import shares

        ends = [*(at for _, at in self._began[1:]), time.monotonic()]
        stages: dict[str, float] = {}
        for (name, began), end in zip(self._began, ends, strict=True):
            stages[name] = stages.get(name, 0.0) + end - began
        busy = {part: after - self._before[part] for part, after in self._after.items()}
        rooms = shares(self._samples.items()) if busy else {}
        seconds_of = {room: share * (busy["fabricd"] - self._copies) for room, share in rooms.items()}
        if rooms:
            seconds_of[COPIES] = self._copies
        return {
            "stages": {name: round(seconds, 4) for name, seconds in stages.items()},
            "busy": {part: round(seconds, 4) for part, seconds in busy.items()},
            "fabricd": {room: round(seconds, 4) for room, seconds in seconds_of.items()},
        }


def wall_s(profile: Mapping[str, Any]) -> float:
    """The wall time that `busy` is of."""
    return float(sum(profile["stages"].get(name, 0.0) for name in (START, WORKLOAD)))


def _samples(lab: Lab) -> dict[int, int]:
    return dict(map(tuple, lab.fabricd.request("profile")["at"]))


def _processor_s(lab: Lab) -> dict[str, float]:
    """Processor time so far. Containers are our children, and their time is known once they have ended."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return {
        "Open vSwitch": _of(lab.record.processes["ovs-vswitchd"].pid),
        "fabricd": _of(lab.record.processes["fabricd"].pid),
        "workers": children.ru_utime + children.ru_stime + forked.server().processor_s(),
        "controller": _of(lab.controller.pid),
        "testbed": time.process_time(),
    }


def _copies_s(lab: Lab) -> float:
    """Processor time so far of fabricd's thread that copies payload; 0 if there is none."""
    tasks = Path(f"/proc/{lab.record.processes['fabricd'].pid}/task").iterdir()
    return _sum(task for task in tasks if (task / "comm").read_text().strip() == COPIES)


def _of(pid: int) -> float:
    return _sum(Path(f"/proc/{pid}/task").iterdir())


def _sum(tasks: Iterable[Path]) -> float:
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9
