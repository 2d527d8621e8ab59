"""Folders for what is only needed while it is made. `testbed clean` removes those of processes that were killed.

Such a folder is among all temporary files, where there is room. A note of its path lies beside the fabrics: written
before the folder is made, and locked by the process that uses it.
"""

from __future__ import annotations

import os
import secrets
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from testbed.base.errors import MachineError
from testbed.machine import ownership
from testbed.machine.directories import remove_tree
from testbed.machine.lockfile import LockFile, is_locked

_NOTE = ".scratch-"


@contextmanager
def scratch(what: str) -> Iterator[Path]:
    """An empty folder, named after what it is for. Who is not root leaves no note. Raises MachineError."""
    if os.geteuid():
        with tempfile.TemporaryDirectory(prefix=f"railbed-{what}-") as temporary:
            yield Path(temporary)
        return
    number = secrets.token_hex(8)
    folder = Path(tempfile.gettempdir(), f"railbed-{what}-{number}")
    with ownership.run_directory(make=True):
        note = ownership.RUN_DIR / f"{_NOTE}{number}"
        lock = LockFile(note)
        os.write(lock.fd, os.fsencode(folder))
    try:
        folder.mkdir(mode=0o700)
        yield folder
    finally:
        _remove(note, folder)
        lock.release()
        ownership.forget_run_directory()


def remove_abandoned() -> list[Path]:
    """Removes the folders of processes that have ended; returns them. Raises MachineError."""
    removed = []
    with suppress(FileNotFoundError), ownership.run_directory():
        for note in sorted(ownership.RUN_DIR.glob(f"{_NOTE}*")):
            if not is_locked(note):
                folder = Path(os.fsdecode(note.read_bytes()))
                removed += [folder] if folder.is_absolute() and folder.is_dir() else []
                _remove(note, folder)
    ownership.forget_run_directory()
    return removed


def _remove(note: Path, folder: Path) -> None:
    if folder.is_absolute():  # it was killed before it had written that
        try:
            remove_tree(folder)
        except FileNotFoundError:
            pass
        except OSError as error:
            raise MachineError(f"{folder} is not all gone: {error.strerror}", str(error.filename)) from None
    note.unlink(missing_ok=True)
