"""A file that a user names: an ordinary one, read as far as it was long when it was opened.

A FIFO or a device would keep us waiting, or has no end. So would /proc/kmsg, which calls itself an ordinary file of no
bytes: of such a one nothing is read.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path


class Unreadable(ValueError):
    """`what` is wrong with the file; `line`: where it is no text."""

    def __init__(self, what: str, line: int = 0) -> None:
        super().__init__(what)
        self.what, self.line = what, line


class Missing(Unreadable):
    """There is none of that name."""


class Folder(Unreadable):
    """It is a folder."""


def check(path: str | Path) -> None:
    """Of a file that another program reads: an ordinary one that has something in it. Raises Unreadable."""
    fd, size = _opened(path)
    os.close(fd)
    if not size:
        raise Unreadable("it is empty")


def read(path: str | Path, most: int) -> bytes:
    """What is in the file, of at most so many bytes. Raises Unreadable."""
    fd, size = _opened(path)
    with os.fdopen(fd, "rb") as file:
        if size > most:
            raise Unreadable(f"larger than {most >> 20} MiB" if most >> 20 else f"larger than {most} bytes")
        try:
            return file.read(size)
        except OSError as error:
            raise Unreadable(error.strerror or str(error)) from None


def text(path: str | Path, most: int) -> str:
    """As `read`, as text. Raises Unreadable."""
    raw = read(path, most)
    try:
        return raw.decode("utf-8-sig")  # spreadsheets begin it with a mark
    except UnicodeDecodeError as error:
        raise Unreadable("not UTF-8 text", raw[: error.start].count(b"\n") + 1) from None


def _opened(path: str | Path) -> tuple[int, int]:
    """Its descriptor, and how long it is. It is looked at before it is opened, which with some devices does
    something, and again after that: it may be another one by then."""
    try:
        _ordinary(os.stat(path))
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError:
        raise Missing("there is no such file") from None
    except OSError as error:
        raise Unreadable(error.strerror or str(error)) from None
    except ValueError as error:  # a name that no file can have; Unreadable is one, too
        raise error if isinstance(error, Unreadable) else Unreadable(str(error)) from None
    try:
        return fd, _ordinary(os.fstat(fd))
    except Unreadable:
        os.close(fd)
        raise


def _ordinary(about: os.stat_result) -> int:
    if stat.S_ISDIR(about.st_mode):
        raise Folder("it is a folder")
    if not stat.S_ISREG(about.st_mode):
        raise Unreadable("it is no ordinary file")
    return about.st_size
