"""A choice among a queue pair's paths of a C file: an entry like ours (hardware.multipath)."""

from __future__ import annotations

import ctypes
from functools import lru_cache

from hardware.multipath import Policy
from testbed.own import entry
from testbed.own.name import parse


class _Multipath(entry.Structure):
    """`struct railbed_multipath` of railbed.h."""

    symbol = "railbed_multipath"
    states = {
        "state_bytes": ("a queue pair's", entry.STATE_BYTES),
        "entropy_bytes": ("an entropy's", entry.ENTROPY_BYTES),
    }
    taken = ("policy", "entropies")
    _fields_ = [
        ("version", ctypes.c_uint32), ("state_bytes", ctypes.c_uint32), ("entropy_bytes", ctypes.c_uint32),
        ("hears", ctypes.c_bool), ("one_path", ctypes.c_bool),
        *entry.WORDS, *entry.MARKS, ("pick", ctypes.c_uint64), ("functions", ctypes.c_uint64 * 4),
    ]  # fmt: skip


@lru_cache(maxsize=64)
def policy(text: str) -> Policy:
    """The entry of a resolved name. Raises BadFile."""
    name = parse(text)
    assert name is not None
    its = entry.read(name, _Multipath)
    parameters, marks = tuple(entry.parameters(name, its)), entry.marks(name, its)
    words = entry.in_words(its)
    return Policy(name.short, *words, parameters, marks=marks, hears=its.hears, one_path=its.one_path)


def for_fabricd(text: str) -> dict[str, object]:
    """What fabricd is told of the file."""
    name = parse(text)
    assert name is not None
    return entry.for_fabricd(name, entry.read(name, _Multipath))
