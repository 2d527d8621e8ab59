"""A lock on a file that lives exactly as long as its holder: how others know that a fabric's owner is alive.

A pid means something in one pid namespace only, and a start time shifts between time namespaces. A lock does neither:
the kernel drops it when the last process that has the file open is gone, however that ended, and everybody who sees the
file sees whether it is locked.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path


class Hold:
    """The lock on a new file, held until `release` or the end of this process, and of those that `fd` is passed to."""

    def __init__(self, path: Path) -> None:
        self.name = path.name
        self.fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        fcntl.flock(self.fd, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def release(self) -> None:
        """Lets go of our share; whoever was passed `fd` still holds it."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1


def held(path: Path) -> bool:
    """Whether somebody holds the lock on this file."""
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
