"""What code of a user's own may ask of others: mathematics and memory. No clocks, random numbers, files; no variables.

That keeps figures what they are: the same on any machine, with the fast path and without, in whatever job of a fabric
that is up. It keeps mistakes out, not malice: fabricd has given up all rights before it runs such code.
"""

from __future__ import annotations

import re
from functools import lru_cache

from testbed.own.compiler import HEADER, compiled
from testbed.own.elf import Elf
from testbed.own.name import BadFile, Name, source

_OF_DOUBLES = """acos acosh asin asinh atan atan2 atanh cbrt ceil copysign cos cosh erf erfc exp exp2 expm1 fabs fdim floor fma
fmax fmin fmod frexp hypot ilogb ldexp llrint llround log log10 log1p log2 logb lrint lround modf nearbyint nextafter
pow remainder rint round scalbn sin sinh sqrt tan tanh tgamma trunc""".split()
ALLOWED = {*_OF_DOUBLES, *(f"{name}f" for name in _OF_DOUBLES), "memcpy", "memmove", "memset", "memcmp", "abs", "labs"}


@lru_cache(maxsize=64)
def checked(name: Name, entry: str) -> bytes:
    """The data of its entry, such as `railbed_control`, once it is seen to be of use. Raises BadFile."""
    elf, macro = Elf(compiled(name).read_bytes()), entry.upper()
    if used := sorted(set(elf.undefined()) - ALLOWED):
        hint = f"{HEADER.name}'s and mathematical functions alone: no clocks, random numbers, input and output"
        raise BadFile(f"{_at(name, used[0])}: {', '.join(used)} cannot be used here", hint)
    if variables := elf.variables():
        hint = "what a flow has to remember stands in its state (flow->state); constants are `static const`"
        raise BadFile(f"{_at(name, variables[0])}: {', '.join(variables)} would be kept outside flows' state", hint)
    if elf.at_loading():
        raise BadFile(f"{name.path}: something in it runs before it is called", "no constructors, no ifuncs")
    data = elf.data(entry)
    if data is None:
        raise BadFile(f"{name.path} defines no {entry}", f"it ends with {macro}(1, ..): see docs/own-controls.md")
    return data


def _at(name: Name, symbol: str) -> str:
    """With the line that names it first, comments left out roughly."""
    lines = source(name).decode(errors="replace").splitlines()
    found = (k for k, line in enumerate(lines, 1) if re.search(rf"\b{re.escape(symbol.partition('.')[0])}\b", line))
    return f"{name.path}:{line}" if (line := next(found, 0)) else name.path
