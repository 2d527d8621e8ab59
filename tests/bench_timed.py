"""How benchmarks take times: of an action by the wall, of a process by its processor."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

RUNS = 3
"""Of each, where nothing else is said."""


def timed(action: Callable[[], Any]) -> tuple[float, Any]:
    """Wall seconds, and what it returns."""
    start = time.monotonic()
    value = action()
    return time.monotonic() - start, value


def cpu_s(pid: int) -> float:
    """CPU time of a process's threads so far."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9
