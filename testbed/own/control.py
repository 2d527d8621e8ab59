"""A congestion control of a C file: an entry like ours (hardware.cc), read from what the compiler has made of it."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable, Iterator
from functools import lru_cache

from hardware.cc import Control, Parameter, Setting, own
from testbed.own.checked import checked
from testbed.own.compiler import compiled
from testbed.own.name import BadFile, Name, parse

VERSION, PARAMETERS, STATE_BYTES = 1, 24, 1024
KINDS = ("number", "rate", "time", "size")
HEARS = {1: "marks", 2: "delay", 4: "telemetry", 8: "losses"}
OF: tuple[Callable[[Setting], float], ...] = (
    lambda s: 1.0,
    lambda s: s.line_rate_bps,
    lambda s: s.base_rtt_ns,
    lambda s: s.network_rtt_ns,
    lambda s: s.bdp_bytes,
    lambda s: s.network_bdp_bytes,
    lambda s: float(s.mtu),
    lambda s: float(s.switches),
)
_WORD = re.compile(r"[a-z][a-z0-9_]*")
_TAKEN = ("file", "set")


class _Amount(ctypes.Structure):
    _fields_ = [("times", ctypes.c_double), ("of", ctypes.c_uint)]

    def of_setting(self) -> Callable[[Setting], float]:
        times, of = self.times, OF[self.of]
        return lambda setting: times * of(setting)


class _Parameter(ctypes.Structure):
    _fields_ = [
        ("name", ctypes.c_char * 32), ("kind", ctypes.c_uint), ("value", _Amount), ("least", ctypes.c_double),
        ("most", ctypes.c_double), ("about", ctypes.c_char * 96),
    ]  # fmt: skip


class Entry(ctypes.Structure):
    """`struct railbed_control` of railbed.h."""

    _fields_ = [
        ("version", ctypes.c_uint32), ("state_bytes", ctypes.c_uint32), ("hears", ctypes.c_uint32),
        ("rounds", ctypes.c_bool), ("fills_window", ctypes.c_bool), ("answers_marks", ctypes.c_bool),
        ("summary", ctypes.c_char * 96), ("source", ctypes.c_char * 96), ("parameters", _Parameter * PARAMETERS),
        ("kmin", _Amount), ("kmax", _Amount), ("pmax", ctypes.c_double), ("functions", ctypes.c_uint64 * 6),
    ]  # fmt: skip


@lru_cache(maxsize=64)
def control(text: str) -> Control:
    """The entry of a resolved name. Raises BadFile."""
    name = parse(text)
    assert name is not None
    entry = _entry(name)
    marks = None
    if entry.kmax.times:
        kmin, kmax, pmax = entry.kmin.of_setting(), entry.kmax.of_setting(), entry.pmax

        def marks(s: Setting) -> tuple[int, int, float]:
            return int(kmin(s)), int(kmax(s)), pmax

    hears = tuple(word for bit, word in HEARS.items() if entry.hears & bit)
    summary = _said(entry.summary) or "of a user's own file"
    return own(name.short, summary, _said(entry.source), tuple(_parameters(name, entry)), hears, marks)


def for_fabricd(text: str) -> dict[str, object]:
    """What fabricd is told of the file: where it is compiled, and its parameters' keys, its own first."""
    name = parse(text)
    assert name is not None
    return {
        "name": name.short,
        "file": str(compiled(name)),
        "params": [p.key for p in _parameters(name, _entry(name))],
    }


def _entry(name: Name) -> Entry:
    data = checked(name, "railbed_control")
    version = int.from_bytes(data[:4], "little")
    if version != VERSION:
        hint = f"RAILBED_CONTROL({VERSION}, ..), and what docs/own-controls.md says of it"
        raise BadFile(f"{name.path} is written for version {version} of railbed.h, and this is {VERSION}", hint)
    if len(data) != ctypes.sizeof(Entry):
        raise BadFile(f"{name.path}: railbed_control is no struct railbed_control", "write RAILBED_CONTROL(1, ..)")
    entry = Entry.from_buffer_copy(data)
    if entry.state_bytes > STATE_BYTES:
        raise BadFile(f"{name.path}: a flow's state has {entry.state_bytes} bytes", f"{STATE_BYTES} at most")
    if any(a.of >= len(OF) or not abs(a.times) < 1e15 for a in (entry.kmin, entry.kmax)) or not 0 <= entry.pmax <= 1:
        raise BadFile(f"{name.path}: kmin, kmax or pmax is no amount", "{times, RAILBED_..}; pmax from 0 to 1")
    if entry.kmax.times and not (entry.kmin.times and entry.pmax):
        raise BadFile(f"{name.path}: kmax is given without kmin and pmax", "all three, or none")
    return entry


def _parameters(name: Name, entry: Entry) -> Iterator[Parameter]:
    count, seen = sum(bool(p.name) for p in entry.parameters), set(_TAKEN)
    for place, p in enumerate(entry.parameters[:count]):
        word, about = _said(p.name), f"{name.path}: parameter {place} ({_said(p.name) or 'without a name'})"
        if not _WORD.fullmatch(word) or word in seen:
            raise BadFile(f"{about} needs a name of its own", "small letters, digits and _, without gaps")
        most = p.most or 1e15
        if p.kind >= len(KINDS) or p.value.of >= len(OF) or not 0 <= p.least <= most <= 1e15:
            hint = "{name, kind, {times, of}, least, most, about}, from 0 to 1e15"
            raise BadFile(f"{about} has no kind or range", hint)
        if not 0 <= p.value.times <= 1e15 or (not p.value.of and not p.least <= p.value.times <= most):
            raise BadFile(f"{about}: its default {p.value.times:g} is not from {p.least:g} to {most:g}")
        seen.add(word)
        default = p.value.of_setting() if p.value.of else p.value.times
        yield Parameter(word, KINDS[p.kind], default, _said(p.about), p.least, most)


def _said(text: bytes) -> str:
    return "".join(c if c.isprintable() else "?" for c in text.decode(errors="replace"))
