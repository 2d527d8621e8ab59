"""Arrows between rooms: C's includes and calls between object files (nm), and which of them run up or in circles."""

from __future__ import annotations

import re
import subprocess
import tomllib
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

FLOORS = "floors.toml"
DEFINED, UNDEFINED = "TDBRVWC", "U"
INCLUDE = re.compile(r'^#include "([^"]+)"', re.MULTILINE)


@dataclass(frozen=True, order=True)
class Arrow:
    """One file of a room needs something of another room."""

    user: str
    used: str
    by: str

    def __str__(self) -> str:
        return f"{self.user} -> {self.used} ({self.by})"


def room(file: str) -> str:
    return file.rpartition("/")[0] or "."


def package(file: str, raised: Collection[str] = ()) -> str:
    """A file's package, or its room if that is one of those on a floor of their own."""
    name, _, inner = file.partition("/")
    own = f"{name}/{room(inner)}"
    return own if own in raised else name


def floors(sources: Path) -> dict[str, int]:
    """The floor of each room, counted from the ground."""
    listed = tomllib.loads((sources / FLOORS).read_text())["floors"]
    return {name: n for n, floor in enumerate(listed) for name in floor}


def includes(sources: Path) -> Iterator[Arrow]:
    for file in sorted((*sources.rglob("*.c"), *sources.rglob("*.h"))):
        name = str(file.relative_to(sources))
        for included in INCLUDE.findall(file.read_text()):
            yield Arrow(name, included, "include")


def calls(objects: Path, sources: Path) -> Iterator[Arrow]:
    """From who needs a symbol to who has it: functions and tables alike, static ones are nobody else's."""
    has: dict[str, str] = {}
    needs: dict[str, list[str]] = defaultdict(list)
    files = [objects / c.relative_to(sources).with_suffix(".o") for c in sorted(sources.rglob("*.c"))]
    printed = subprocess.run(["nm", "-A", *map(str, files)], capture_output=True, text=True, check=True).stdout
    for line in printed.splitlines():
        path, _, rest = line.partition(":")
        kind, symbol = rest.split()[-2:]
        file = str(Path(path).relative_to(objects).with_suffix(".c"))
        if kind in DEFINED:
            has[symbol] = file
        elif kind == UNDEFINED:
            needs[file].append(symbol)
    for file, symbols in needs.items():
        yield from (Arrow(file, has[s], s) for s in symbols if s in has)


def upward(arrows: Iterable[Arrow], floor: dict[str, int], of: Callable[[str], str] = room) -> list[Arrow]:
    """The arrows that run up, or to a room beside; `of` gives a file's room."""
    between = (a for a in arrows if of(a.user) != of(a.used))
    return sorted(a for a in between if floor[of(a.used)] >= floor[of(a.user)])


def circles(arrows: Iterable[Arrow], of: Callable[[str], str] = room) -> list[set[str]]:
    """Rooms that reach each other, in sets of two or more."""
    graph: dict[str, set[str]] = defaultdict(set)
    for a in arrows:
        if of(a.user) != of(a.used):
            graph[of(a.user)].add(of(a.used))
    reached = {name: _reached(name, graph) for name in list(graph)}
    found = {frozenset(o for o in reached[n] if n in reached.get(o, ())) for n in reached if n in reached[n]}
    return sorted((set(c) for c in found if len(c) > 1), key=sorted)


def _reached(start: str, graph: dict[str, set[str]]) -> set[str]:
    seen: set[str] = set()
    left = [start]
    while left:
        for name in graph.get(left.pop(), set()) - seen:
            if name != start or start not in seen:
                seen.add(name)
                left.append(name)
    return seen
