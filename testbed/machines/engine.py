"""Hands the points of a sweep out to places: this machine and others, each with room for so many at a time.

A thread for each point waits for it. What becomes of points, and of places, comes out of `said`. If one point at a time
runs here and nowhere else, it needs neither thread nor process (`InTurn`).
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
    """A point that has come back from `place`, with what it says. Or `error`: it could not be run at all; `problem`: no
    other place would do better; `gone`: it was lost with the place."""

    number: int
    told: dict[str, Any]
    place: str
    error: str = ""
    problem: UserError | None = None
    gone: bool = False


@dataclass(frozen=True)
class Lost:
    """A place that is no more, and why."""

    place: str
    why: str = ""


class Gone(Exception):
    """A place was lost, and what ran there with it."""


class Place(Protocol):
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
    """This machine as a place."""

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


class Engine:
    """Points are handed in with `submit`; those of lower numbers run first."""

    def __init__(self, places: Sequence[Place]) -> None:
        self.said: queue.SimpleQueue[Ended | Lost] = queue.SimpleQueue()
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
        """Gives a place nothing more."""
        with self._lock:
            self._places.pop(name, None)
            self._begin()

    def cancel(self) -> None:
        """Nothing more is run."""
        with self._lock:
            self._waiting.clear()

    def _begin(self) -> None:
        """Whatever there is room for. A point waits for those before it, but for such as may not run everywhere."""
        for number in sorted(self._waiting):
            one = self._waiting[number]
            place = self._free_for(one)
            if place is None and not one.avoid:
                return
            if place is not None:
                del self._waiting[number]
                self._take(place, one, -1)
                name = f"point-{number}"
                threading.Thread(target=self._run, args=(place, number, one), name=name, daemon=True).start()

    def _free_for(self, one: _Waiting) -> Place | None:
        """The place with most room."""
        wanted = [name for name in self._places if name not in one.avoid] or list(self._places)
        fit = [name for name in wanted if self._slots[name] > 0 and self._need(name, one) <= self._memory[name]]
        return self._places[max(fit, key=lambda name: self._slots[name])] if fit else None

    def _need(self, name: str, one: _Waiting) -> float:
        return min(one.memory, self._places[name].memory)  # alone it may have all that there is

    def _take(self, place: Place, one: _Waiting, slots: int) -> None:
        self._slots[place.name] += slots
        self._memory[place.name] += slots * min(one.memory, place.memory)

    def _run(self, place: Place, number: int, one: _Waiting) -> None:
        try:
            ended = Ended(number, place.run(number, one.point), place.name)
        except Gone as gone:
            ended = Ended(number, {}, place.name, str(gone), gone=True)
        except UserError as error:
            ended = Ended(number, {}, place.name, error.what, error)
        except Exception as error:
            ended = Ended(number, {}, place.name, f"{type(error).__name__}: {error}")
        with self._lock:
            self._take(place, one, 1)
            self._begin()
        self.said.put(ended)


class InTurn:
    """An engine for one point at a time on this machine alone: `run` is called at once, in this process."""

    def __init__(self, run: Callable[[int], dict[str, Any]]) -> None:
        self.said: queue.SimpleQueue[Ended | Lost] = queue.SimpleQueue()
        self._run = run

    def submit(self, number: int, point: dict[str, Any], memory: float, avoid: frozenset[str] = frozenset()) -> None:
        """Runs a point."""
        self.said.put(Ended(number, self._run(number), HERE))

    def retire(self, name: str) -> None:
        """There is no other place."""

    def cancel(self) -> None:
        """Nothing waits."""
