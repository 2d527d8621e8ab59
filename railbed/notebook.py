"""Progress in a notebook: one line that changes, where a cell's output is."""

from __future__ import annotations

import sys
import time
from html import escape
from typing import Any

from testbed.base.progress import Progress

EVERY_S = 0.2
"""The line changes no more often."""


def in_notebook() -> bool:
    """Whether cells show HTML: IPython runs, and not in a terminal."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython else None
    return shell is not None and hasattr(shell, "kernel")


class NotebookProgress(Progress):
    def __init__(self) -> None:
        self._text, self._total, self._seen, self._shown = "", 0, 0, 0.0
        self._points = ""
        self._handle: Any = None

    def __enter__(self) -> Progress:
        from IPython.display import HTML, display

        self._html = HTML
        self._handle = display(HTML(""), display_id=True)
        return self

    def __exit__(self, *_: object) -> None:
        self._handle.update(self._html(""))

    def stage(self, text: str) -> None:
        self._text, self._total = text, 0
        self._show(at_once=True)

    def measure(self, total: int) -> None:
        self._text, self._total, self._seen = "running", total, 0
        self._show(at_once=True)

    def advance(self, text: str) -> None:
        self._seen += 1
        self.doing(text)

    def doing(self, text: str) -> None:
        self._text = text
        self._show()

    def point(self, text: str) -> None:
        self._points = f"{self._sweep.next()}: {text}"
        self._show(at_once=True)

    def point_ended(self, text: str) -> None:
        self._sweep.done += 1
        self._points = f"{self._sweep.ended()}: {text}"
        self._show(at_once=True)

    def _show(self, at_once: bool = False) -> None:
        if not at_once and time.monotonic() < self._shown + EVERY_S:
            return
        self._shown = time.monotonic()
        bar = f'<progress value="{self._seen}" max="{self._total}"></progress> ' if self._total else ""
        text = escape(" - ".join(filter(None, (self._points, self._text))))
        self._handle.update(self._html(f"<div>{bar}{text}</div>"))
