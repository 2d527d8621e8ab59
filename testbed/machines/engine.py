"""Engines run the points of a sweep, several at a time: this one all on this machine, cluster.py on several.

`Here` is a thread for each point, which waits for its process. Dask is for several machines: here there is nothing to
hand around and nobody to lose, and it takes as long to start as a small point takes to run.
"""

from __future__ import annotations

import queue
import threading
from dataclasses import dataclass
from typing import Any, Protocol

from testbed.machines.processes import Processes
from testbed.machines.where import HERE


@dataclass(frozen=True)
class Ended:
    """A point that has come back, with what it says; or `error`: it could not be run at all."""

    number: int
    told: dict[str, Any]
    error: str = ""


@dataclass(frozen=True)
class Lost:
    """A machine whose worker is gone."""

    machine: str


class Engine(Protocol):
    """Points are handed in with `submit`; what becomes of them, and of machines, comes out of `said`."""

    said: queue.SimpleQueue[Ended | Lost]

    def submit(self, number: int, point: dict[str, Any], memory: float) -> None:
        """Has a point run, those of lower numbers first."""

    def forget(self, number: int) -> None:
        """What came of it is at home."""

    def retire(self, machine: str) -> None:
        """Gives a machine nothing more; what it has goes to others."""

    def cancel(self) -> None:
        """Nothing more is run."""


class Here:
    """An Engine of this machine alone. As many points as are handed in run at a time, in `memory` bytes altogether."""

    def __init__(self, processes: Processes, memory: float) -> None:
        self.said: queue.SimpleQueue[Ended | Lost] = queue.SimpleQueue()
        self._processes = processes
        self._free = memory
        self._waiting: set[int] = set()
        self._changed = threading.Condition()

    def submit(self, number: int, point: dict[str, Any], memory: float) -> None:
        """Has a point run."""
        with self._changed:
            self._waiting.add(number)
        threading.Thread(target=self._run, args=(number, point, memory), name=f"point-{number}", daemon=True).start()

    def _run(self, number: int, point: dict[str, Any], memory: float) -> None:
        with self._changed:
            self._changed.wait_for(lambda: number not in self._waiting or self._is_next(number, memory))
            if number not in self._waiting:
                return
            self._waiting.discard(number)
            self._free -= memory
            self._changed.notify_all()
        try:
            told = Ended(number, {**self._processes.run(point), "machine": HERE})
        except Exception as error:
            told = Ended(number, {}, f"{type(error).__name__}: {error}")
        with self._changed:
            self._free += memory
            self._changed.notify_all()
        self.said.put(told)

    def _is_next(self, number: int, memory: float) -> bool:
        return number == min(self._waiting) and memory <= self._free

    def forget(self, number: int) -> None:
        """What came of it is at home: nothing is kept here."""

    def retire(self, machine: str) -> None:
        """There is no other machine that its points could go to."""

    def cancel(self) -> None:
        """Nothing more is run."""
        with self._changed:
            self._waiting.clear()
            self._changed.notify_all()
