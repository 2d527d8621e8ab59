"""Lock files: a process keeps one locked as long as it lives, so that others know that it is alive.

A pid is only valid in its own pid namespace, and a start time shifts between time namespaces. A lock has neither
problem: the kernel drops it when the last process that has the file open ends, in whatever way, and whoever can open
the file can see whether it is locked.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path


class LockFile:
    """A new file, locked until `release` or the end of this process, and of all processes that `fd` was passed to."""

    def __init__(self, path: Path) -> None:
        self.name = path.name
        self.fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        fcntl.flock(self.fd, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def release(self) -> None:
        """Gives up our share; a process that was passed `fd` still has the lock."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1


def is_locked(path: Path) -> bool:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return False
