"""Says on stderr what a prediction is at when it takes long: after 2 s, and then after twice the time each."""

from __future__ import annotations

import sys
import threading
import time

FIRST_S = 2.0


class Working:
    """A context manager."""

    def __init__(self, first_s: float = FIRST_S) -> None:
        self._wait_s, self._began = first_s, time.monotonic()
        self._at = "reading the file"
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Working:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    def at(self, text: str) -> None:
        """What comes next."""
        self._at = text

    def _watch(self) -> None:
        while not self._done.wait(self._wait_s):
            taken = time.monotonic() - self._began
            print(f"note: {self._at}: {taken:.0f} s so far", file=sys.stderr, flush=True)
            self._wait_s *= 2
