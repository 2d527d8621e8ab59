"""How long a process is waited for, and by what it is judged: the same rule as fabricd's own (patience.c).

On a busy machine everybody is late, so wall time alone says nothing. A process is judged when it is stopped (state T),
or when patience has run out: the time since its last word, less the time for which its threads were ready to run and
got no CPU (/proc/PID/task/TID/schedstat). It is never judged for what others do to it.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path

DEFAULT_S = 60.0
LOOK_S = 0.25
STOPPED_S = 2.0
_LOOK_MAX_S = 2 * LOOK_S
_TICK_S = 1 / os.sysconf("SC_CLK_TCK")
_PROC = Path("/proc")


class Patience:
    """With one process, by its pid (0: not known; then only time counts), and those below it if `family`."""

    def __init__(
        self, pid: int, limit_s: float = DEFAULT_S, *, family: bool = False, stopped_s: float = STOPPED_S
    ) -> None:
        self.pid = pid
        self._family = family
        self.limit_s = limit_s
        self.state = "?"
        self._stopped_limit_s = stopped_s
        self._cpu_s = self._queued_s = 0.0
        self.begin()

    def begin(self) -> None:
        """It has said something, or is asked something."""
        self.heard = self._looked = time.monotonic()
        self._spent_s = self._stopped_s = 0.0
        self._first = True

    @property
    def silent_s(self) -> float:
        """Wall time since its last word."""
        return time.monotonic() - self.heard

    @property
    def stopped(self) -> bool:
        """Whether it was found stopped for long enough to be judged by that."""
        return self._stopped_s >= self._stopped_limit_s

    def look(self) -> str | None:
        """Looks at it, at most every LOOK_S; why it is judged, None while patience lasts."""
        now = time.monotonic()
        step = min(now - self._looked, _LOOK_MAX_S)
        if now - self._looked < LOOK_S:
            return None
        self._looked = now
        self._spent_s = max(0.0, self._spent_s + self._counts(step))
        if self.stopped:
            return f"process {self.pid} is stopped"
        if self._spent_s >= self.limit_s:
            return f"process {self.pid} has said nothing for {self.silent_s:.0f} s"
        return None

    def _counts(self, step: float) -> float:
        """How much of the time since the last look is its own."""
        pids = [self.pid, *(_below(self.pid) if self._family else ())]
        stats = [stat for pid in pids if (stat := _stat(pid))]
        if not stats:
            self.state = "?"
            return step
        states = [state for state, _ in stats]
        self.state = "R" if "R" in states else states[0]
        cpu, queued = sum(cpu for _, cpu in stats), sum(map(_queued, pids))
        ready = self.state == "R" and cpu == self._cpu_s
        kept = 0.0 if self._first else max(0.0, queued - self._queued_s)
        self._stopped_s = self._stopped_s + step if "T" in states else 0.0
        self._cpu_s, self._queued_s, self._first = cpu, queued, False
        return (0.0 if ready else step) - kept


def _stat(pid: int) -> tuple[str, float] | None:
    """State and CPU seconds of a process; None if it is gone."""
    try:
        fields = (_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return fields[0], (int(fields[11]) + int(fields[12])) * _TICK_S


def _queued(pid: int) -> float:
    """For how long its threads were ready to run and did not, in seconds."""
    total = 0
    with suppress(OSError):
        for thread in list((_PROC / str(pid) / "task").iterdir())[:64]:
            with suppress(OSError, IndexError):
                total += int((thread / "schedstat").read_text().split()[1])
    return total / 1e9


def _below(pid: int) -> list[int]:
    """Its children, and theirs."""
    try:
        children = [int(p) for p in (_PROC / str(pid) / "task" / str(pid) / "children").read_text().split()]
    except OSError:
        return []
    return [one for child in children for one in (child, *_below(child))]
