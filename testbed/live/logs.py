"""What the parts of a fabric have written: fabricd, controller, Open vSwitch, workers, jobs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from testbed.base.text import printable

PARTS = {
    "fabricd": ("fabricd.log",),
    "controller": ("controller.log", "controller.out"),
    "ovs": ("ovs/*.log",),
    "workers": ("container*.log", "runc.log"),
    "jobs": ("jobs/*.log",),
}


def written(directory: Path, parts: Sequence[str] = tuple(PARTS)) -> list[Path]:
    patterns = [pattern for part in parts for pattern in PARTS[part]]
    return [path for pattern in patterns for path in sorted(directory.glob(pattern))]


def last(path: Path, lines: int) -> list[str]:
    """The last lines of a file, without what could move a terminal's cursor."""
    text = path.read_text(errors="replace").splitlines()
    return [printable(line) for line in (text[-lines:] if lines else [])]
