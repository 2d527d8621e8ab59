"""What a program's file says of it: does it take clocks and sockets from the C library, or bring its own?

The virtual clock reaches a program through the C library's functions. One that is linked statically has none to be
replaced; Go's runtime asks the kernel itself; another C library (musl) cannot load ours.
"""

from __future__ import annotations

import os
import shutil
import struct
from collections.abc import Iterator

_HEAD = 1 << 16  # bytes in which program headers and the names of notes are looked for
_INTERPRETER, _NOTE = 3, 4  # PT_INTERP, PT_NOTE
_SETUID = 0o6000


def has_own_clock(name: str, path: str) -> str:
    """Why a program, as a shell finds it by its name, would not see the emulated clock; empty if it would.

    Of a script it is its interpreter that counts.
    """
    found = shutil.which(name, path=path)
    for _ in range(4):  # as many as the kernel follows
        if not found:
            return ""
        try:
            with open(found, "rb") as file:
                head, mode = file.read(_HEAD), os.fstat(file.fileno()).st_mode
        except OSError:
            return ""
        if head[:2] != b"#!":
            return _of_elf(head, mode)
        words = os.fsdecode(head[2:].split(b"\n", 1)[0]).split()
        if words and os.path.basename(words[0]) == "env":
            words = words[1:]
        found = shutil.which(words[0], path=path) if words else None
    return ""


def _of_elf(head: bytes, mode: int) -> str:
    if head[:6] != b"\x7fELF\x02\x01":  # 64 bits, little endian
        return ""
    try:
        parts = dict(_segments(head))
    except struct.error:
        return ""
    interpreter = parts.get(_INTERPRETER)
    if interpreter is None:
        return "is linked statically and brings its own clock"
    if b"ld-musl" in interpreter:
        return "is linked with musl, which cannot load the library of emulated clocks"
    if b"Go\0\0" in parts.get(_NOTE, b""):
        return "is written in Go, whose runtime brings its own clock"
    return "runs with another user's rights, and takes no clock from us" if mode & _SETUID else ""


def _segments(head: bytes) -> Iterator[tuple[int, bytes]]:
    """Kind and bytes of each segment that lies in the head; notes as one."""
    (at,) = struct.unpack_from("<Q", head, 32)
    size, count = struct.unpack_from("<HH", head, 54)
    notes = b""
    for k in range(min(count, 64)):
        kind, _, offset, _, _, length = struct.unpack_from("<IIQQQQ", head, at + k * size)
        data = head[offset : offset + length]
        if kind == _NOTE:
            notes += data
            data = notes
        yield kind, data
