"""This process: whether it is the `testbed` command, and signals that end it."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

_ENDING: tuple[int, ...] = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)

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
            for number in _ENDING:
                if signal.getsignal(number) not in (signal.SIG_IGN, None):
                    before[number] = signal.signal(number, lambda number, _frame: note(number))
        yield
    finally:
        _put_back(before)


def _put_back(handlers: Mapping[int, Any]) -> None:
    """A signal that acts as soon as its handler is back must not keep the others from theirs."""
    try:
        for number, handler in handlers.items():
            signal.signal(number, handler)
    finally:
        for number, handler in handlers.items():
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


class PendingSignals:
    """What `held` gives: a block `with pending:` is one in which signals act as they did before."""

    def __init__(self) -> None:
        self.before: dict[int, Callable[[int, Any], Any]] = {}
        self._acts = False
        self._came: list[int] = []

    def handle(self, number: int, frame: Any) -> None:
        if self._acts:
            self.before[number](number, frame)
        else:
            self._came.append(number)

    def __enter__(self) -> None:
        try:
            self._acts = True
            if self._came:
                signal.raise_signal(self._came.pop(0))
        except BaseException:
            self._acts = False
            raise

    def __exit__(self, *_: object) -> None:
        self.no_more()

    def no_more(self) -> None:
        """Signals wait again from here on."""
        self._acts = False

    def came(self) -> int:
        """The exit code of the first that waits, 0 for none; whoever asks sees to it."""
        return 128 + self._came.pop(0) if self._came else 0


@contextmanager
def held(*, at_the_end: bool = False) -> Iterator[PendingSignals]:
    """Signals that end this process wait for the next block `with pending:`, and act there.

    So none comes between the making of a thing and the code that removes it. What comes after the last such block is
    ignored, or acts `at_the_end`.
    """
    pending = PendingSignals()
    try:
        if threading.current_thread() is threading.main_thread():
            for number in _ENDING:
                if callable(handler := signal.getsignal(number)):
                    pending.before[number] = handler
                    signal.signal(number, pending.handle)
        yield pending
    finally:
        _put_back(pending.before)
        if at_the_end and (code := pending.came()):
            signal.raise_signal(code - 128)
