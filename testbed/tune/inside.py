"""The progress of a search: trials are what is counted, and what a sweep within it says of its points is not shown."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from testbed.base.progress import Progress


class Inside(Progress):
    """Of the sweeps that a search is made of, shown by the search's own progress."""

    def __init__(self, progress: Progress) -> None:
        self._of = progress

    def trials(self, total: int) -> None:
        self._of.points(total, called="trials")

    def ended(self, text: str) -> None:
        """A trial has ended."""
        self._of.point_ended(text)

    def stage(self, text: str) -> None:
        self._of.stage(text)

    def measure(self, total: int) -> None:
        self._of.measure(total)

    def advance(self, text: str) -> None:
        self._of.advance(text)

    def line(self, line: Mapping[str, Any]) -> None:
        self._of.line(line)

    def doing(self, text: str) -> None:
        self._of.doing(text)

    def note(self, text: str) -> None:
        self._of.note(text)

    def warn(self, text: str) -> None:
        self._of.warn(text)

    def points(self, total: int, done: int = 0, called: str = "points") -> None:
        pass

    def point(self, text: str) -> None:
        pass

    def point_done(self) -> None:
        pass

    def point_ended(self, text: str) -> None:
        pass
