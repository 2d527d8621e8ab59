"""How a run shows that it gets on: a bar on stderr if that is a terminal, a line there for what must not be missed."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress as Bar
    from rich.progress import TaskID


class Progress:
    """Says nothing but notes; a context manager."""

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def stage(self, text: str) -> None:
        """The run has come to `text`, which takes a while."""

    def measure(self, total: int) -> None:
        """The workers are at work; `total` measurements will come."""

    def advance(self, text: str) -> None:
        """A measurement came in: `text` says of what."""

    def line(self, line: Mapping[str, Any]) -> None:
        """The measurement itself, as the worker printed it."""

    def doing(self, text: str) -> None:
        """What is being measured takes long: how far it is."""

    def note(self, text: str) -> None:
        """Something that the user should know while the run goes on."""
        print(f"note: {text}", file=sys.stderr)


class TerminalProgress(Progress):
    """A bar that goes away when the run is over."""

    def __init__(self, console: Console) -> None:
        from rich.progress import BarColumn, SpinnerColumn, TextColumn, TimeElapsedColumn
        from rich.progress import Progress as Bar

        self._bar: Bar = Bar(
            SpinnerColumn(),
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=None),
            TextColumn("{task.fields[count]}"),
            TimeElapsedColumn(),
            console=console,
            transient=True,
            expand=True,
            refresh_per_second=8,
        )
        self._task: TaskID = self._bar.add_task("", total=None, count="")
        self._total = 0
        self._seen = 0

    def __enter__(self) -> Progress:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def stage(self, text: str) -> None:
        self._bar.update(self._task, description=text, total=None, count="")

    def measure(self, total: int) -> None:
        self._total = total
        self._bar.update(self._task, description="running", total=total, completed=0, count=f"0/{total}")

    def advance(self, text: str) -> None:
        self._seen += 1
        self._bar.update(self._task, advance=1, description=text, count=f"{self._seen}/{self._total}")

    def doing(self, text: str) -> None:
        self._bar.update(self._task, description=text)

    def note(self, text: str) -> None:
        self._bar.console.print(f"note: {text}", style="yellow", markup=False, highlight=False)


def for_stderr() -> Progress:
    """The progress to show: a bar on a terminal, else only notes."""
    if not sys.stderr.isatty():
        return Progress()
    from rich.console import Console

    return TerminalProgress(Console(stderr=True))
