"""The progress of a run on stderr: a bar if that is a terminal, and a line for each note."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress as Bar
    from rich.progress import TaskID


class Progress:
    """Prints notes only; a context manager."""

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
        """A measurement takes long: `text` says how far it is."""

    def waiting(self, whom: str, seconds: float) -> None:
        """The run has waited so long for `whom`; called repeatedly.  Noted after 10 s, then after twice the time."""
        if whom != self._whom or seconds < self._noted / 4:  # something new
            self._whom, self._noted = whom, 10.0
        if seconds >= self._noted:
            self._noted = 2 * self._noted
            self.note(f"waiting for {whom} for {seconds:.0f} s")

    _whom = ""
    _noted = 10.0

    def note(self, text: str) -> None:
        """Prints what the user should know while the run goes on."""
        self._print(f"note: {text}")

    def _print(self, text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    def warn(self, text: str) -> None:
        """As `note`, but only once for all points of a sweep."""
        if text not in self._warned:
            self._warned = {*self._warned, text}
            self.note(text)

    _warned: frozenset[str] | set[str] = frozenset()

    def points(self, total: int, done: int = 0, called: str = "points") -> None:
        """A sweep begins, of so many runs, or goes on after so many."""
        self._sweep = SweepClock(total, done, called)

    def point(self, text: str) -> None:
        """The next point begins: `text` says which."""
        self._print(f"{self._sweep.next()}: {text}")

    def point_done(self) -> None:
        self._sweep.done += 1

    def point_ended(self, text: str) -> None:
        """As `point` and `point_done`, of one among several that run at a time: `text` says which, and where."""
        self._sweep.done += 1
        self._print(f"{self._sweep.ended()}: {text}")


class LineProgress(Progress):
    """Where stderr is no terminal: a line now and then says that the run goes on, and how far it is."""

    def __init__(self, quiet_s: float = 10.0) -> None:
        self._quiet_s = quiet_s  # so long nothing is said
        self._said = time.monotonic()
        self._text, self._total, self._seen = "", 0, 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._go_on, daemon=True)

    def __enter__(self) -> Progress:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _go_on(self) -> None:
        while not self._over.wait(max(0.0, self._said + self._quiet_s - time.monotonic())):
            if self._text and time.monotonic() >= self._said + self._quiet_s:
                count = f"{self._seen} of {self._total} measurements, " if self._total else ""
                self._print(f"{count}{self._text}")
            elif not self._text:
                self._said = time.monotonic()

    def stage(self, text: str) -> None:
        self._text, self._total = text, 0

    def measure(self, total: int) -> None:
        self._text, self._total, self._seen = "running", total, 0

    def advance(self, text: str) -> None:
        self._seen += 1
        self._text = text

    def doing(self, text: str) -> None:
        self._text = text

    def _print(self, text: str) -> None:
        super()._print(text)
        self._said = time.monotonic()


class SweepClock:
    """How far a sweep is, and how long the rest will take at the same pace."""

    def __init__(self, total: int, done: int = 0, called: str = "points") -> None:
        self.total, self._called = total, called
        self.done = self._before = done
        self._began = time.monotonic()

    def next(self) -> str:
        """`point 4 of 40, 2 min left`."""
        left = f", {self.left()} left" if self.done else ""
        return f"point {self.done + 1} of {self.total}{left}"

    def ended(self) -> str:
        """`4 of 40 points done, 2 min left`."""
        left = f", {self.left()} left" if self.done < self.total else ""
        return f"{self.done} of {self.total} {self._called} done{left}"

    def left(self) -> str:
        """The mean of the points so far, times those to come."""
        taken = (time.monotonic() - self._began) / max(1, self.done - self._before)
        return duration(taken * (self.total - self.done))


def duration(seconds: float) -> str:
    """`40 s`, `3 min`, `2.5 h`, `3 days`: as exact as a guess deserves."""
    for unit, length in (("days", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.2g} {unit}"
    return f"{seconds:.0f} s"


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

    def points(self, total: int, done: int = 0, called: str = "points") -> None:
        super().points(total, done, called)
        self._points: TaskID = self._bar.add_task("sweep", total=total, completed=done, count=f"{done}/{total}")

    def point(self, text: str) -> None:
        self._bar.update(self._points, description=text)

    def point_done(self) -> None:
        super().point_done()
        self._show_points()

    def point_ended(self, text: str) -> None:
        self._sweep.done += 1
        self._show_points()
        self._bar.update(self._points, description=text)

    def _show_points(self) -> None:
        count = f"{self._sweep.done}/{self._sweep.total}, {self._sweep.left()} left"
        self._bar.update(self._points, completed=self._sweep.done, count=count)

    def measure(self, total: int) -> None:
        self._total, self._seen = total, 0
        self._bar.update(self._task, description="running", total=total, completed=0, count=f"0/{total}")

    def advance(self, text: str) -> None:
        self._seen += 1
        self._bar.update(self._task, advance=1, description=text, count=f"{self._seen}/{self._total}")

    def waiting(self, whom: str, seconds: float) -> None:
        self.doing(f"waiting for {whom} for {seconds:.0f} s")

    def doing(self, text: str) -> None:
        self._bar.update(self._task, description=text)

    def note(self, text: str) -> None:
        self._bar.console.print(f"note: {text}", style="yellow", markup=False, highlight=False)


def for_stderr() -> Progress:
    """The progress to show: a bar on a terminal, else a line now and then."""
    if not sys.stderr.isatty():
        return LineProgress()
    from rich.console import Console

    return TerminalProgress(Console(stderr=True))
