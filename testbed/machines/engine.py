"""Hands the points of a sweep out to places: this machine and others, each with room for so many at a time.

A thread for each point waits for it. What becomes of points and places is put into the queue `events`. One point at a
time on this machine alone needs neither thread nor process (`InTurn`).
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from testbed.base.errors import UserError
from testbed.machines.processes import Processes
from testbed.machines.where import HERE


@dataclass(frozen=True)
class Ended:
    """A point that has ended at `place`, with its answer (point.py).

    Or `error`: it could not be run at all; `problem`: no other place would do better; `gone`: lost with the place.
    """

    number: int
    answer: dict[str, Any]
    place: str
    error: str = ""
    problem: UserError | None = None
    gone: bool = False


@dataclass(frozen=True)
class Lost:
    """A place that is no more, and why."""

    place: str
    why: str = ""


class BackendLost(Exception):
    """A place was lost, and what ran there with it."""


class Backend(Protocol):
    """Where points run; `run` returns what a point says (point.py), and raises Gone."""

    @property
    def name(self) -> str: ...
    @property
    def points(self) -> int: ...
    @property
    def memory(self) -> float: ...
    def run(self, number: int, point: dict[str, Any]) -> dict[str, Any]:
        """Runs a point to its end."""


@dataclass
class Here:
    processes: Processes
    points: int
    memory: float
    name: str = HERE

    def run(self, number: int, point: dict[str, Any]) -> dict[str, Any]:
        """In a process of its own."""
        return self.processes.run(point)


@dataclass(frozen=True)
class _Waiting:
    point: dict[str, Any]
    memory: float
    avoid: frozenset[str]


class Dispatcher:
    """Points are handed in with `submit`; those of lower numbers run first."""

    def __init__(self, places: Sequence[Backend]) -> None:
        self.events: queue.SimpleQueue[Ended | Lost] = queue.SimpleQueue()
        self._places = {place.name: place for place in places}
        self._slots = {place.name: place.points for place in places}
        self._memory = {place.name: place.memory for place in places}
        self._waiting: dict[int, _Waiting] = {}
        self._lock = threading.Lock()

    def submit(self, number: int, point: dict[str, Any], memory: float, avoid: frozenset[str] = frozenset()) -> None:
        """Has a point run; on one of the places to avoid only if there is no other."""
        with self._lock:
            self._waiting[number] = _Waiting(point, memory, avoid)
            self._begin()

    def retire(self, name: str) -> None:
        with self._lock:
            self._places.pop(name, None)
            self._begin()

    def cancel(self) -> None:
        with self._lock:
            self._waiting.clear()

    def _begin(self) -> None:
        """Whatever there is room for. A point waits for those before it, but for such as may not run everywhere."""
        for number in sorted(self._waiting):
            waiting = self._waiting[number]
            place = self._free_for(waiting)
            if place is None and not waiting.avoid:
                return
            if place is not None:
                del self._waiting[number]
                self._take(place, waiting, -1)
                name = f"point-{number}"
                threading.Thread(target=self._run, args=(place, number, waiting), name=name, daemon=True).start()

    def _free_for(self, waiting: _Waiting) -> Backend | None:
        """The place with most room."""
        names = [name for name in self._places if name not in waiting.avoid] or list(self._places)
        fit = [name for name in names if self._slots[name] > 0 and self._need(name, waiting) <= self._memory[name]]
        return self._places[max(fit, key=lambda name: self._slots[name])] if fit else None

    def _need(self, name: str, waiting: _Waiting) -> float:
        return min(waiting.memory, self._places[name].memory)  # alone it may have all that there is

    def _take(self, place: Backend, waiting: _Waiting, slots: int) -> None:
        self._slots[place.name] += slots
        self._memory[place.name] += slots * min(waiting.memory, place.memory)

    def _run(self, place: Backend, number: int, waiting: _Waiting) -> None:
        try:
            ended = Ended(number, place.run(number, waiting.point), place.name)
        except BackendLost as gone:
            ended = Ended(number, {}, place.name, str(gone), gone=True)
        except UserError as error:
            ended = Ended(number, {}, place.name, error.what, error)
        except Exception as error:
            ended = Ended(number, {}, place.name, f"{type(error).__name__}: {error}")
        with self._lock:
            self._take(place, waiting, 1)
            self._begin()
        self.events.put(ended)


class InTurn:
    """An engine for one point at a time on this machine alone: `run` is called at once, in this process."""

    def __init__(self, run: Callable[[int], dict[str, Any]]) -> None:
        self.events: queue.SimpleQueue[Ended | Lost] = queue.SimpleQueue()
        self._run = run

    def submit(self, number: int, point: dict[str, Any], memory: float, avoid: frozenset[str] = frozenset()) -> None:
        self.events.put(Ended(number, self._run(number), HERE))

    def retire(self, name: str) -> None:
        """There is no other place."""

    def cancel(self) -> None:
        """Nothing waits."""
