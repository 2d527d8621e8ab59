"""What code of a user's own may ask of others: mathematics and memory. No clocks, random numbers, files; no variables.

That keeps figures what they are: the same on any machine, with the fast path and without, in whatever job of a fabric
that is up. It keeps mistakes out, not malice: fabricd has given up all rights before it runs such code.
"""

from __future__ import annotations

import re
import struct
from functools import lru_cache

from testbed.own.compiler import HEADER, compiled
from testbed.own.elf import Elf
from testbed.own.name import BadFile, Name, source

VERSION = 2
PAGES = {
    "railbed_control": "docs/own-controls.md",
    "railbed_multipath": "docs/own-paths.md",
    "railbed_adaptive": "docs/own-paths.md",
}
_OF_NUMBERS = (
    "a?(cos|sin|tan)h?|atan2|cbrt|ceil|copysign|erfc?|exp2?|expm1|fabs|fdim|floor|fma|fmax|fmin|fmod|frexp|hypot|ilogb|"
    "ldexp|l?lrint|l?lround|log|log10|log1p|log2|logb|modf|nearbyint|nextafter|pow|remainder|rint|round|scalbn|sqrt|"
    "tgamma|trunc"
)
_ASIDE = re.compile(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"', re.S)
"""Comments and strings."""
_INSTRUCTION = re.compile(
    r"\b(__asm__|__asm|asm|_*(?:builtin_ia32_)?rd(?:tsc|rand|seed|pmc)\w*|__builtin_readcyclecounter)\b"
)
"""Code that no symbol tells of: an assembler's, and the processor's own clocks and random numbers."""
_ALLOWED = re.compile(rf"({_OF_NUMBERS})f?|mem(cpy|move|set|cmp)|l?l?abs")


@lru_cache(maxsize=64)
def checked(name: Name, entry: str) -> bytes:
    """The data of its entry, such as `railbed_control`, once it is seen to be of use. Raises BadFile."""
    try:
        return _checked(name, Elf(compiled(name).read_bytes()), entry)
    except (struct.error, IndexError, ValueError):
        raise BadFile(f"{name.path}: what the compiler makes cannot be read", "64 bits, little endian, ELF") from None


def _checked(name: Name, elf: Elf, entry: str) -> bytes:
    if used := sorted(s for s in set(elf.undefined()) if not _ALLOWED.fullmatch(s)):
        hint = f"{HEADER.name}'s and mathematical functions alone: no clocks, random numbers, input and output"
        raise BadFile(f"{_at(name, used[0])}: {', '.join(used)} cannot be used here", hint)
    if variables := elf.variables():
        hint = "what is to be remembered stands in `state`, which each call is given; constants are `static const`"
        raise BadFile(f"{_at(name, variables[0])}: {', '.join(variables)} would be kept outside its state", hint)
    if elf.at_loading():
        hint = "no constructors, no ifuncs, no function called _init or _fini"
        raise BadFile(f"{name.path}: something in it runs before it is called", hint)
    text = _ASIDE.sub(lambda aside: "\n" * aside[0].count("\n"), source(name).decode(errors="replace"))
    if found := _INSTRUCTION.search(text):
        hint = "no assembler, and no clocks or random numbers of the processor: `now`, and railbed_random()"
        line = text.count("\n", 0, found.start()) + 1
        raise BadFile(f"{name.path}:{line}: {found[0]} cannot be used here", hint)
    data = elf.data(entry)
    if data is None:
        raise BadFile(
            f"{name.path} defines no {entry}", f"it ends with {entry.upper()}({VERSION}, ..): see {PAGES[entry]}"
        )
    return data


def _at(name: Name, symbol: str) -> str:
    """With the line that uses it first, as far as a glance at the text can tell."""
    lines, word = source(name).decode(errors="replace").splitlines(), re.escape(symbol.partition(".")[0])
    for used in (rf"\b{word}\s*\(", rf"\b{word}\b"):
        if line := next((k for k, text in enumerate(lines, 1) if re.search(used, text)), 0):
            return f"{name.path}:{line}"
    return name.path
