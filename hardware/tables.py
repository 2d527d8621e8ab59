"""Reads tables of fabricd's sources, so that Python has no copy of them.

A table is a `.def` file, or lines of a C file: an entry a line or more, each a call of a macro, `NAME(argument, ..)`.
"""

from __future__ import annotations

import re
from pathlib import Path

FABRICD = Path(__file__).resolve().parent / "fabricd"
STRING = re.compile(r'"((?:\\.|[^"\\])*)"')
COMMA = re.compile(r",(?=(?:[^\"\\]|\"(?:\\.|[^\"\\])*\"|\\.)*$)")


def entries(file: str, macro: str = "[A-Z]+") -> list[list[str]]:
    """The arguments of each entry; string literals are joined and unescaped."""
    entry = re.compile(rf"^\t?{macro}\(((?:\"(?:\\.|[^\"\\])*\"|[^\")])*)\)$", re.MULTILINE)
    return [[_meant(argument) for argument in COMMA.split(m[1])] for m in entry.finditer((FABRICD / file).read_text())]


def _meant(argument: str) -> str:
    pieces = STRING.findall(argument)
    return "".join(re.sub(r"\\(.)", r"\1", p) for p in pieces) if pieces else argument.strip()
