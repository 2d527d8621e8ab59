"""In which line of a user's C file an instruction stands that was stopped."""

from __future__ import annotations

import re
import subprocess
from contextlib import suppress
from subprocess import DEVNULL

from workloads.own.python import caller

WALL_S = 10


def line_of(compiled: str, offset: int) -> int:
    """By addr2line of the compiler's own package, with the rights that the compiler had; 0: not known."""
    user = caller()
    with suppress(OSError, subprocess.SubprocessError):
        told = subprocess.run(
            ["addr2line", "-e", compiled, hex(offset)], stdin=DEVNULL, stderr=DEVNULL, stdout=subprocess.PIPE,
            timeout=WALL_S, check=True, text=True, errors="replace",
            user=user[0] if user else None, group=user[1] if user else None, extra_groups=[] if user else None,
        )  # fmt: skip
        if match := re.search(r":(\d+)(?: \(.*\))?$", told.stdout.strip()):
            return int(match[1])
    return 0
