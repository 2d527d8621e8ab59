"""Makes and removes directories, however deep. Programs that are not trusted may have filled them.

Python's `shutil.rmtree` recurses for every level, and the kernel refuses paths that are too long. So nothing here
recurses, and removal never goes deeper than two levels: a folder inside a folder is first moved up to the top.
"""

from __future__ import annotations

import errno
import fcntl
import os
import secrets
import struct
from contextlib import suppress
from pathlib import Path

_GET_FLAGS, _SET_FLAGS, _TOP = 0x80086601, 0x40086602, 0x20000  # FS_IOC_GETFLAGS, .. of linux/fs.h
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def remove_tree(top: str | Path) -> None:
    """Removes a directory and all that is in it; follows no link, and leaves file systems mounted below it alone.

    Goes on past what cannot be removed; then raises OSError, which names the first of that.
    """
    fd = os.open(top, _FOLDER)
    try:
        problems = _empty(fd)
    finally:
        os.close(fd)
    if problems:
        first = problems[0]
        raise OSError(first.errno, first.strerror, os.path.join(top, str(first.filename)))
    os.rmdir(top)


def _empty(top: int) -> list[OSError]:
    problems: list[OSError] = []
    moved = f".gone-{secrets.token_hex(8)}-"
    count = 0
    waiting = os.listdir(top)
    while waiting:
        name = waiting.pop()
        try:
            if _unlink(name, top):
                continue
            folder = os.open(name, _FOLDER, dir_fd=top)
            try:
                for inside in os.listdir(folder):
                    if not _unlink(inside, folder):
                        count += 1
                        os.rename(inside, f"{moved}{count}", src_dir_fd=folder, dst_dir_fd=top)
                        waiting.append(f"{moved}{count}")
            finally:
                os.close(folder)
            os.rmdir(name, dir_fd=top)
        except OSError as error:
            problems.append(error)
    return problems


def _unlink(name: str, folder: int) -> bool:
    """Whether it was removed: anything but a directory."""
    try:
        os.unlink(name, dir_fd=folder)
    except IsADirectoryError:
        return False
    return True


def lay_apart(folder: int) -> None:
    """What is made in a directory (of this descriptor) lies apart on the disk, if that has ext4.

    Ext4 takes no place again that was given back within a minute, and looks through all of these for each new file:
    many fabrics one after the other, in one part of the disk, would spend a tenth of their processor time on that.
    """
    with suppress(OSError):  # another file system
        flags = struct.unpack("=l4x", fcntl.ioctl(folder, _GET_FLAGS, bytes(8)))[0]
        fcntl.ioctl(folder, _SET_FLAGS, struct.pack("=l4x", flags | _TOP))


def make_folders(path: str) -> list[str]:
    """Makes a directory and those above it that are not there; returns those it made, from the outermost on."""
    missing = []
    while not os.path.isdir(path):
        missing.append(path)
        path = os.path.dirname(path)
    for folder in reversed(missing):
        os.mkdir(folder)
    return missing[::-1]


def remove(path: str) -> None:
    try:
        os.unlink(path)
    except FileNotFoundError:
        return
    except IsADirectoryError:
        remove_tree(path)
    except OSError as error:
        if error.errno != errno.ENOTDIR:
            raise
