"""A sweep of small points, and what several tests do with it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from testbed.base.progress import Progress

SWEEP = """
name: small-sweep
fabric: {topology: {star: {hosts: 2}}}
workload: [{flows: [{from: 1, to: 0, size: 64KiB}]}]
"""


class Noted(Progress):
    """Keeps what is said."""

    def __init__(self) -> None:
        self.notes: list[str] = []
        self.ended: list[str] = []

    def note(self, text: str) -> None:
        self.notes.append(text)

    def warn(self, text: str) -> None:
        self.notes.append(text)

    def point(self, text: str) -> None:
        pass

    def point_ended(self, text: str) -> None:
        super().point_done()
        self.ended.append(text)


def told(folder: Path) -> dict[str, Any]:
    """What the sweep's folder says of it."""
    return json.loads((folder / "sweep.json").read_text())  # type: ignore[no-any-return]
