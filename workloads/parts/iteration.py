"""One iteration of a step, whatever the step does: all begin at once, and what it takes of a rank is measured."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from workloads.verbs import Device

PROGRESS_EVERY_S = 0.5

Emit = Callable[[dict[str, Any]], None]


class Measured(NamedTuple):
    """What an iteration has taken of one rank (Tally says what the last two are)."""

    start_ns: float
    end_ns: float
    host_ns: float
    sent_bytes: int


def measured(device: Device, step: int, ranks: int, run: Callable[[float], None]) -> Measured:
    """Waits until all `ranks` of step number `step` are here, calls `run` with that time, and measures it."""
    start_ns = device.sync(step + 1, ranks)
    before = device.tally
    run(start_ns)
    end_ns = device.time_ns
    took = device.tally.since(before)
    return Measured(start_ns, end_ns, took.host_ps / 1000, took.sent_bytes)


def progress(line: Mapping[str, Any], emit: Emit | None) -> Callable[[int, int], None]:
    """A tick that says how far an operation is, when it takes long (None: says nothing)."""
    last = time.monotonic()

    def tick(done: int, of: int) -> None:
        nonlocal last
        now = time.monotonic()
        if emit and now - last >= PROGRESS_EVERY_S:
            last = now
            emit({"kind": "progress", **line, "done": done, "of": of})

    return tick
