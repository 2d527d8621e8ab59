"""The record of what operators have done at a fabric: config.jsonl in its directory, one line an action or rollback.

Lines are only ever added. An action that is taken back gets a line that says so.
"""

from __future__ import annotations

import fcntl
import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import IO, Any

FILE = "config.jsonl"


@dataclass(frozen=True)
class Done:
    """An action that was carried out, or with `rollback` one that was taken back."""

    number: int
    line: str
    """As it was written, without `config`."""
    time_ns: float
    cost_ns: float
    notes: tuple[str, ...] = ()
    undo: tuple[dict[str, Any], ...] = ()
    """What takes it back (steps.Undo)."""
    for_good: str = ""
    """Why it cannot be taken back."""
    rollback: bool = False
    rolled_back_ns: float | None = field(default=None)
    """When it was taken back."""

    @property
    def state(self) -> str:
        if self.rolled_back_ns is not None:
            return "rolled back"
        return "in force" if self.in_force else "done"

    @property
    def in_force(self) -> bool:
        """It stands, and can be taken back."""
        return bool(self.undo) and not self.for_good and self.rolled_back_ns is None


def read(entry: Mapping[str, Any]) -> Done:
    """From what `asdict` has made of it, by way of JSON."""
    return Done(**{**entry, "notes": tuple(entry["notes"]), "undo": tuple(entry["undo"])})


class Record:
    """The record of one fabric, held while it is open: nobody else acts meanwhile."""

    def __init__(self, file: IO[str]) -> None:
        self._file = file

    def entries(self) -> list[Done]:
        self._file.seek(0)
        return _entries(self._file)

    def add(self, done: Done) -> None:
        self._file.write(json.dumps(asdict(done)) + "\n")
        self._file.flush()


@contextmanager
def opened(directory: Path) -> Iterator[Record]:
    """The record of a fabric in this directory; waits until nobody else has it open."""
    with (directory / FILE).open("a+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield Record(file)


def log(directory: Path) -> list[Done]:
    """What was done at the fabric in this directory; does not wait for who acts."""
    try:
        text = (directory / FILE).read_text()
    except FileNotFoundError:
        return []
    return _entries(text[: text.rfind("\n") + 1].splitlines())  # the last line may not be written to its end


def _entries(lines: Iterable[str]) -> list[Done]:
    entries: dict[int, Done] = {}
    for line in lines:
        entry = read(json.loads(line))
        if entry.rollback:
            entries[entry.number] = replace(entries[entry.number], rolled_back_ns=entry.time_ns)
        else:
            entries[entry.number] = entry
    return list(entries.values())
