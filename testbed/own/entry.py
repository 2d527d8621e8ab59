"""What all entries of a user's C file have in common, as railbed.h lays it out: a version, parameters, amounts."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable, Iterator
from typing import Any, ClassVar, TypeVar

from hardware.cc import Parameter, Setting
from testbed.own.checked import PAGES, VERSION, checked
from testbed.own.compiler import compiled
from testbed.own.name import BadFile, Name

PARAMETERS, STATE_BYTES, ENTROPY_BYTES, SWITCH_BYTES = 24, 1024, 16, 1 << 20
KINDS = ("number", "rate", "time", "size")
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


class Amount(ctypes.Structure):
    _fields_ = [("times", ctypes.c_double), ("of", ctypes.c_uint)]

    def of_setting(self) -> Callable[[Setting], float]:
        times, of = self.times, OF[self.of]
        return lambda setting: times * of(setting)


class _Parameter(ctypes.Structure):
    _fields_ = [
        ("name", ctypes.c_char * 32), ("kind", ctypes.c_uint), ("value", Amount), ("least", ctypes.c_double),
        ("most", ctypes.c_double), ("about", ctypes.c_char * 96),
    ]  # fmt: skip


WORDS: list[Any] = [
    ("summary", ctypes.c_char * 96),
    ("source", ctypes.c_char * 96),
    ("parameters", _Parameter * PARAMETERS),
]
MARKS: list[Any] = [("kmin", Amount), ("kmax", Amount), ("pmax", ctypes.c_double)]


class Structure(ctypes.Structure):
    symbol: ClassVar[str] = ""
    states: ClassVar[dict[str, tuple[str, int]]] = {}
    """Sizes of what is remembered: what of, and the most that it may be."""

    taken: ClassVar[tuple[str, ...]] = ()
    """Words that mean something else beside its parameters."""


_Kind = TypeVar("_Kind", bound=Structure)


def read(name: Name, kind: type[_Kind]) -> _Kind:
    """The entry of a file. Raises BadFile."""
    data, macro = checked(name, kind.symbol), kind.symbol.upper()
    version = int.from_bytes(data[:4], "little")
    if not 1 <= version <= VERSION:
        hint = f"{macro}({VERSION}, ..), and what {PAGES[kind.symbol]} says of it"
        raise BadFile(f"{name.path} is written for version {version} of railbed.h, and this is {VERSION}", hint)
    if len(data) != ctypes.sizeof(kind):
        raise BadFile(f"{name.path}: {kind.symbol} is no struct {kind.symbol}", f"write {macro}({VERSION}, ..)")
    entry = kind.from_buffer_copy(data)
    for field, (whose, most) in kind.states.items():
        if (size := getattr(entry, field)) > most:
            raise BadFile(f"{name.path}: {whose} state has {size} bytes", f"{most} at most")
    if not getattr(entry, "pick", 1):
        raise BadFile(f"{name.path} has no pick()", f"{macro}({VERSION}, .., .pick = ..)")
    return entry


def for_fabricd(name: Name, entry: Any) -> dict[str, object]:
    """What fabricd is told of the file: where it is compiled, and its parameters' keys."""
    return {"name": name.short, "file": str(compiled(name)), "params": [p.key for p in parameters(name, entry)]}


def marks(name: Name, entry: Any) -> Callable[[Setting], tuple[int, int, float]] | None:
    """Its Kmin, Kmax and Pmax of switches. Raises BadFile."""
    if any(a.of >= len(OF) or not abs(a.times) < 1e15 for a in (entry.kmin, entry.kmax)) or not 0 <= entry.pmax <= 1:
        raise BadFile(f"{name.path}: kmin, kmax or pmax is no amount", "{times, RAILBED_..}; pmax from 0 to 1")
    if not entry.kmax.times:
        return None
    if not (entry.kmin.times and entry.pmax):
        raise BadFile(f"{name.path}: kmax is given without kmin and pmax", "all three, or none")
    kmin, kmax, pmax = entry.kmin.of_setting(), entry.kmax.of_setting(), entry.pmax
    return lambda setting: (int(kmin(setting)), int(kmax(setting)), pmax)


def parameters(name: Name, entry: Any) -> Iterator[Parameter]:
    """Raises BadFile."""
    count, seen = sum(bool(p.name) for p in entry.parameters), {"file", *entry.taken}
    for place, p in enumerate(entry.parameters[:count]):
        word, about = said(p.name), f"{name.path}: parameter {place} ({said(p.name) or 'without a name'})"
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
        yield Parameter(word, KINDS[p.kind], default, said(p.about), p.least, most)


def said(text: bytes) -> str:
    return "".join(c if c.isprintable() else "?" for c in text.decode(errors="replace"))


def in_words(entry: Any) -> tuple[str, str]:
    """Summary and source."""
    return said(entry.summary) or "of a user's own file", said(entry.source)
