"""JSON lines: one request a line on a file descriptor, one answer a line on another."""

from __future__ import annotations

import os
import select
from collections.abc import Callable, Iterator

from drills.agents.desk import AgentSession

LONGEST_LINE = 64 * 1024


def serve(
    desk: AgentSession,
    read_fd: int,
    write_fd: int,
    *,
    stop_fd: int | None = None,
    done: Callable[[], bool] = lambda: False,
) -> None:
    """Until the other end is gone, or the session, or `done`, or there is something at `stop_fd`."""
    for line in lines(read_fd, stop_fd):
        if line is not None and not line.strip():
            continue
        answer = desk.too_long(LONGEST_LINE) if line is None else desk.ask_line(line)
        if not _sent(write_fd, answer) or desk.gone or done():
            return


def lines(fd: int, stop_fd: int | None = None) -> Iterator[bytes | None]:
    """What comes in by lines, also the last one if it is not ended; None for one that is too long."""
    line, skipping = b"", False
    while data := _read(fd, stop_fd):
        *whole, rest = data.split(b"\n")
        for part in whole:
            yield None if skipping or len(line) + len(part) > LONGEST_LINE else line + part
            line, skipping = b"", False
        line += rest
        if len(line) > LONGEST_LINE:
            line, skipping = b"", True
    if line or skipping:
        yield None if skipping else line


def _read(fd: int, stop_fd: int | None) -> bytes:
    """b"" when it is over."""
    try:
        if stop_fd is not None and stop_fd in select.select([fd, stop_fd], [], [])[0]:
            return b""
        return os.read(fd, LONGEST_LINE)
    except OSError:
        return b""


def _sent(fd: int, answer: str) -> bool:
    """False if nobody reads it."""
    data = memoryview(answer.encode() + b"\n")
    try:
        while data:
            data = data[os.write(fd, data) :]
    except OSError:
        return False
    return True
