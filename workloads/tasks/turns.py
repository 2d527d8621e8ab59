"""Who is next on a rank's unordered streams: one task at a time, of those that wait the first in the list."""

from __future__ import annotations

from collections.abc import Hashable
from heapq import heappop, heappush
from typing import Generic, TypeVar

Stream = TypeVar("Stream", bound=Hashable)
Which = TypeVar("Which", int, tuple[int, int])


class Turns(Generic[Stream, Which]):
    """Streams that are busy, and the tasks that wait for each."""

    def __init__(self) -> None:
        self._busy: set[Stream] = set()
        self._waiting: dict[Stream, list[Which]] = {}

    def taken(self, stream: Stream, task: Which) -> bool:
        """Whether the stream was free, and is the task's now; else it waits."""
        if stream in self._busy:
            heappush(self._waiting.setdefault(stream, []), task)
            return False
        self._busy.add(stream)
        return True

    def left(self, stream: Stream) -> Which | None:
        """The stream is free; the first of those that wait for it has to ask again."""
        self._busy.discard(stream)
        waiting = self._waiting.get(stream)
        return heappop(waiting) if waiting else None
