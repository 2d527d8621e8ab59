"""The run store: one folder per run.

A run is written into a folder of a temporary name, `NAME.partial`, and renamed to `NAME` when it is complete: a folder
of the final name is a complete run. A failed run is kept as `NAME.failed`; state.json says why. Measurements
are appended line by line as they come in, so that even a killed run has them.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from itertools import count
from pathlib import Path
from typing import Any, TextIO

from results.frames.columns import table
from topologies.graph.mistake import Mistake

RUNS = Path("results/runs")
SCHEMA = 1
"""Of a run's folder, in state.json. Grows when a value changes its meaning for older readers; not for additions, such
as a column. Folders without it are older than the first."""


class StoreError(Mistake):
    """A run folder that cannot be made or read: `what` and `where`, and `hint` on what to do."""

    def __init__(self, what: str, where: str, hint: str = "") -> None:
        super().__init__(what, hint, where)


def imports_for_frames() -> None:
    """Imports what RunFolder.write_frame needs, which takes a while."""
    import pyarrow.parquet  # noqa: F401


class RunFolder:
    """A run being written. Make it with `create`; end it with `complete`, `fail` or `discard`."""

    def __init__(self, path: Path, final: Path) -> None:
        self.path = path
        self.final = final
        self._began = time.time()
        self._made: list[Path] = []  # parent folders that did not exist, outermost first
        self._appending: dict[str, TextIO] = {}

    @classmethod
    def create(cls, name: str, out: str | Path | None = None) -> RunFolder:
        """Makes the folder for a run: `out`, or results/runs/<timestamp>-<name> under the current folder.

        Raises StoreError if it cannot be written, or if `out` exists and is not an empty folder.
        """
        if out is not None and not str(out).strip():
            raise StoreError("the name of the run folder is empty", "--out", "name a folder, or leave it out")
        final = Path(out) if out is not None else _fresh(RUNS / f"{datetime.now():%Y%m%d-%H%M%S}-{_file_name(name)}")
        final = Path(os.path.abspath(final))
        _check_free(final)
        made = _make_parents(final.parent)
        folder: RunFolder | None = None
        try:
            folder = cls(_make_beside(final, "partial"), final)
            folder._made = made
            folder._set_state("running", None)
            (folder.path / "logs").mkdir()
        except OSError as error:
            if folder is not None:
                shutil.rmtree(folder.path, ignore_errors=True)
            for parent in reversed(made):
                with suppress(OSError):
                    parent.rmdir()
            raise StoreError(f"the run folder cannot be written: {error.strerror}", str(final), _ELSEWHERE) from None
        return folder

    @property
    def logs(self) -> Path:
        """Where logs go: rank<N>.log and the like."""
        return self.path / "logs"

    def write_json(self, name: str, value: Any) -> None:
        """Writes `value` to the file `name`; if there is no room, the file is what it was before."""
        new = self.path / f"{name}.new"
        try:
            new.write_text(_laid_out(value) + "\n")
            new.replace(self.path / name)
        except OSError:
            new.unlink(missing_ok=True)
            raise

    def write_text(self, name: str, text: str) -> None:
        """Writes `text` to the file `name`."""
        (self.path / name).write_text(text)

    def append(self, name: str, value: Mapping[str, Any]) -> None:
        """Appends `value` as one JSON line to the file `name`, at once."""
        if name not in self._appending:
            self._appending[name] = (self.path / name).open("a", buffering=1)
        self._appending[name].write(json.dumps(value) + "\n")

    def write_frame(self, name: str, rows: Sequence[Mapping[str, Any]]) -> None:
        """Writes the frame `name` (a key of results.frames.columns.COLUMNS) as Parquet."""
        import pyarrow.parquet as pq

        (self.path / "metrics").mkdir(exist_ok=True)
        pq.write_table(table(name, rows), self.path / "metrics" / f"{name}.parquet")

    def complete(self) -> Path:
        """The run is done: gives the folder its final name, and returns it."""
        return self._end("complete", None, self.final)

    def fail(self, error: Mapping[str, Any]) -> Path:
        """The run failed: renames its folder to NAME.failed, and returns that."""
        return self._end("failed", error, self.final.with_name(f"{self.final.name}.failed"))

    def discard(self) -> None:
        """Nothing was measured: removes the folder, and its parents if they were made for it."""
        self._close()
        shutil.rmtree(self.path, ignore_errors=True)
        for parent in reversed(self._made):
            with suppress(OSError):
                parent.rmdir()

    def _end(self, state: str, error: Mapping[str, Any] | None, name: Path) -> Path:
        self._close()
        self._set_state(state, error)
        for candidate in _numbered(name):
            try:
                os.rename(self.path, candidate)
            except OSError:
                if candidate.exists():  # another program has used it since then: it stays
                    continue
                raise
            self.path = candidate
            return candidate
        raise AssertionError("unreachable")

    def _close(self) -> None:
        for file in self._appending.values():
            with suppress(OSError):  # a full disk: that was reported when it was written
                file.close()
        self._appending.clear()

    def _set_state(self, state: str, error: Mapping[str, Any] | None) -> None:
        """Writes into the space that the file took from the beginning, so that it works on a full disk, too."""
        ended = None if state == "running" else time.time()
        about = {"schema": SCHEMA, "state": state, "error": error, "pid": os.getpid(), "began": self._began,
                 "ended": ended}  # fmt: skip
        text = json.dumps(about, indent=2)
        if len(text) >= _STATE_BYTES:
            short = {"what": str((error or {}).get("what"))[: _STATE_BYTES // 4]}
            text = json.dumps(about | {"error": short}, indent=2)
        fd = os.open(self.path / "state.json", os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            os.pwrite(fd, text.ljust(_STATE_BYTES - 1).encode() + b"\n", 0)
        finally:
            os.close(fd)


_STATE_BYTES = 16384
_ELSEWHERE = "name another folder with --out"


def _check_free(final: Path) -> None:
    try:
        if not os.path.lexists(final):
            return
        if not final.is_dir():
            raise StoreError("there is a file of that name", str(final), _ELSEWHERE)
        if any(final.iterdir()):
            raise StoreError("the folder exists and is not empty", str(final), _ELSEWHERE)
    except OSError as error:
        raise StoreError(f"the run folder cannot be written: {error.strerror}", str(final), _ELSEWHERE) from None


def _make_parents(folder: Path) -> list[Path]:
    """Makes `folder` and what is missing above it; returns what was made, outermost first."""
    missing = [p for p in (folder, *folder.parents) if not p.exists()][::-1]
    made: list[Path] = []
    try:
        for parent in missing:
            parent.mkdir()
            made.append(parent)
    except OSError as error:
        for parent in reversed(made):
            parent.rmdir()
        raise StoreError(f"the run folder cannot be written: {error.strerror}", str(folder), _ELSEWHERE) from None
    return made


def _make_beside(final: Path, suffix: str) -> Path:
    """Makes and returns the folder FINAL.SUFFIX, or the first of FINAL.SUFFIX-2.. that is free."""
    for candidate in _numbered(final.with_name(f"{final.name}.{suffix}")):
        try:
            candidate.mkdir()
        except FileExistsError:
            continue
        return candidate
    raise AssertionError("unreachable")


def _numbered(path: Path) -> Iterator[Path]:
    yield path
    yield from (path.with_name(f"{path.name}-{number}") for number in count(2))


def _fresh(path: Path) -> Path:
    return next(p for p in _numbered(path) if not p.exists())


def _file_name(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-.") or "run"


def _laid_out(value: Any, depth: int = 2) -> str:
    """JSON with a line for each entry, and for each row of a table. (With `indent` the encoder in C is not used, and
    counters of a thousand ranks take seconds.)"""
    if not depth or not value or not isinstance(value, dict | list):
        return json.dumps(value)
    margin = "\n" + "  " * (3 - depth)
    if isinstance(value, list):
        return "[" + ",".join(margin + _laid_out(item, depth - 1) for item in value) + margin[:-2] + "]"
    named = (json.dumps({key: None})[1:-5] + _laid_out(item, depth - 1) for key, item in value.items())
    return "{" + ",".join(margin + entry for entry in named) + margin[:-2] + "}"
