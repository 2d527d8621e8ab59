"""A congestion control of a C file: an entry like ours (hardware.cc), read from what the compiler has made of it."""

from __future__ import annotations

import ctypes
from functools import lru_cache

from hardware.cc import Control, own
from testbed.own import entry
from testbed.own.name import parse

HEARS = {1: "marks", 2: "delay", 4: "telemetry", 8: "losses", 16: "credit"}


class _Control(entry.Structure):
    """`struct railbed_control` of railbed.h."""

    symbol = "railbed_control"
    states = {"state_bytes": ("a flow's", entry.STATE_BYTES)}
    taken = ("set",)
    _fields_ = [
        ("version", ctypes.c_uint32), ("state_bytes", ctypes.c_uint32), ("hears", ctypes.c_uint32),
        ("rounds", ctypes.c_bool), ("fills_window", ctypes.c_bool), ("answers_marks", ctypes.c_bool),
        ("by_message", ctypes.c_bool), ("speculates", ctypes.c_bool),
        *entry.WORDS, *entry.MARKS, ("functions", ctypes.c_uint64 * 8),
    ]  # fmt: skip


@lru_cache(maxsize=64)
def control(text: str) -> Control:
    """The entry of a resolved name. Raises BadFile."""
    name = parse(text)
    assert name is not None
    its = entry.read(name, _Control)
    hears = tuple(word for bit, word in HEARS.items() if its.hears & bit)
    parameters = tuple(entry.parameters(name, its))
    return own(name.short, *entry.in_words(its), parameters, hears, entry.marks(name, its))


def for_fabricd(text: str) -> dict[str, object]:
    """What fabricd is told of the file."""
    name = parse(text)
    assert name is not None
    return entry.for_fabricd(name, entry.read(name, _Control))
