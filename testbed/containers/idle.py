"""A program that does nothing, for containers that wait for commands: an image may not even have `sleep`.

It is an executable of one segment that waits for a signal, forever.
"""

from __future__ import annotations

import platform
import struct
from pathlib import Path

from testbed.base.errors import MachineError

_BASE = 0x400000
_HEADERS = 64 + 56
_PAUSE = {
    # mov eax, 34 (pause); syscall; jmp back
    "x86_64": (62, bytes.fromhex("b822000000 0f05 ebf7")),
    # x0 to x4 = 0; x8 = 73 (ppoll: no descriptors, no time limit); svc; b back
    "aarch64": (183, struct.pack("<8I", *(0xD2800000 + n for n in range(5)), 0xD2800928, 0xD4000001, 0x17FFFFF9)),
}


def program(machine: str = platform.machine()) -> bytes:
    """The executable, for this machine. Raises MachineError if it is neither x86_64 nor aarch64."""
    if machine not in _PAUSE:
        raise MachineError(f"there is no idle program for {machine} machines")
    number, code = _PAUSE[machine]
    size = _HEADERS + len(code)
    ident = b"\x7fELF\2\1\1" + bytes(9)
    header = struct.pack("<16sHHIQQQIHHHHHH", ident, 2, number, 1, _BASE + _HEADERS, 64, 0, 0, 64, 56, 1, 0, 0, 0)
    segment = struct.pack("<IIQQQQQQ", 1, 5, 0, _BASE, _BASE, size, size, 0x1000)  # load, read and execute
    return header + segment + code


def write(path: Path) -> Path:
    """Puts the program there, unless it is there already; returns the path."""
    if not path.exists():
        new = path.with_suffix(".new")
        new.write_bytes(program())
        new.chmod(0o755)
        new.rename(path)
    return path
