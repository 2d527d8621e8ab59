"""The progress of a search: trials are what is counted, and what a sweep within it says of its points is not shown."""

from __future__ import annotations

from testbed.base.progress import Progress

_SHOWN = ("stage", "measure", "advance", "line", "doing", "waiting", "note", "warn")


class Inside(Progress):
    """Of the sweeps that a search is made of, shown by the search's own progress."""

    def __init__(self, progress: Progress) -> None:
        self._of = progress
        for what in _SHOWN:
            setattr(self, what, getattr(progress, what))

    def trials(self, total: int) -> None:
        self._of.points(total, called="trials")

    def ended(self, text: str) -> None:
        """A trial has ended."""
        self._of.point_ended(text)

    def points(self, total: int, done: int = 0, called: str = "points") -> None:
        pass

    def point(self, text: str) -> None:
        pass

    def point_done(self) -> None:
        pass

    def point_ended(self, text: str) -> None:
        pass
