"""This process: whether it is the `testbed` command, and signals that end it."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

ours = False
"""testbed.cli sets it. In a notebook or a script others' code runs beside ours."""


@contextmanager
def caught(note: Callable[[int], object]) -> Iterator[None]:
    """Signals that end this process are given to `note` until the end of the block; ignored ones stay so (nohup).

    They are caught, not blocked: a blocked one goes to another thread of the process, and its handler runs at once.
    Python runs handlers in the main thread alone, so that there is nothing to do in another one.
    """
    before = {}
    try:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
                if signal.getsignal(number) not in (signal.SIG_IGN, None):
                    before[number] = signal.signal(number, lambda number, _frame: note(number))
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def undisturbed() -> Iterator[None]:
    """Signals that end this process wait until the end of the block: what is made inside is then in somebody's care."""
    came: list[int] = []
    try:
        with caught(came.append):
            yield
    finally:
        for first in came[:1]:
            signal.raise_signal(first)
