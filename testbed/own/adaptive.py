"""A choice among a switch's ports of a C file: an entry like ours (hardware.multipath)."""

from __future__ import annotations

import ctypes
from functools import lru_cache

from hardware.multipath import PortPolicy
from testbed.own import entry
from testbed.own.name import parse


class _Adaptive(entry.Structure):
    """`struct railbed_adaptive` of railbed.h."""

    symbol = "railbed_adaptive"
    states = {
        "state_bytes": ("a switch's", entry.SWITCH_BYTES),
        "set_bytes": ("a set of ports'", entry.STATE_BYTES),
    }
    _fields_ = [
        ("version", ctypes.c_uint32), ("state_bytes", ctypes.c_uint32), ("set_bytes", ctypes.c_uint32),
        *entry.WORDS, ("pick", ctypes.c_uint64),
    ]  # fmt: skip


@lru_cache(maxsize=64)
def policy(text: str) -> PortPolicy:
    """The entry of a resolved name. Raises BadFile."""
    name = parse(text)
    assert name is not None
    its = entry.read(name, _Adaptive)
    return PortPolicy(name.short, *entry.in_words(its), tuple(entry.parameters(name, its)))


def for_fabricd(text: str) -> dict[str, object]:
    """What fabricd is told of the file."""
    name = parse(text)
    assert name is not None
    return entry.for_fabricd(name, entry.read(name, _Adaptive))
