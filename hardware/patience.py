"""How long a process is waited for before it is given up, by the same rule as in fabricd (patience.c).

On a busy machine every process is late, so wall time alone says nothing. A process is given up when it is stopped
(state T), or when patience has run out: the time since its last message, less the time in which its threads were ready
to run and got no CPU (/proc/PID/task/TID/schedstat). So it is never given up for what other processes do.
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
    """Patience with the process `pid` (0: not known; then only time counts), and with its descendants if `family`."""

    def __init__(
        self, pid: int, limit_s: float = DEFAULT_S, *, family: bool = False, stopped_s: float | None = None
    ) -> None:
        self.pid = pid
        self._family = family
        self.limit_s = limit_s
        self.state = "?"
        self._stopped_limit_s = STOPPED_S if stopped_s is None else stopped_s
        self._cpu_s = self._queued_s = 0.0
        self.begin()

    def begin(self) -> None:
        """Starts anew: it has sent something, or has just been asked."""
        self.heard = self._looked = time.monotonic()
        self._spent_s = self._stopped_s = 0.0
        self._first = True

    @property
    def silent_s(self) -> float:
        """Wall time since its last message."""
        return time.monotonic() - self.heard

    @property
    def stopped(self) -> bool:
        """Whether it has been stopped for long enough to be given up."""
        return self._stopped_s >= self._stopped_limit_s

    def look(self) -> str | None:
        """Looks at the process, at most every LOOK_S; returns why it is given up, or None while patience lasts."""
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
        """How much of the time since the last look counts."""
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
    """Seconds for which its threads were ready to run and got no CPU."""
    total = 0
    with suppress(OSError):
        for thread in list((_PROC / str(pid) / "task").iterdir())[:64]:
            with suppress(OSError, IndexError):
                total += int((thread / "schedstat").read_text().split()[1])
    return total / 1e9


def _below(pid: int) -> list[int]:
    """Its descendants."""
    try:
        children = [int(p) for p in (_PROC / str(pid) / "task" / str(pid) / "children").read_text().split()]
    except OSError:
        return []
    return [one for child in children for one in (child, *_below(child))]
