"""Which room of fabricd is at which address: from the map that the linker has left beside the objects."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from hardware.build import FABRICD

ELSEWHERE = "libraries"
_OBJECT = re.compile(r"^ \.text\S*\s+0x([0-9a-f]+)\s+0x([0-9a-f]+)\s+(\S+\.o)$", re.M)


def shares(samples: Iterable[Sequence[int]], binary: Path = FABRICD) -> dict[str, float]:
    """Share of each room in fabricd's samples ([offset, count]), the largest first; empty without samples."""
    places = _places(binary)
    starts = [start for start, _, _ in places]
    counted: Counter[str] = Counter()
    for offset, count in samples:
        at = bisect_right(starts, offset + 63) - 1  # the last that begins in these 64 bytes
        inside = at >= 0 and offset < places[at][1]
        counted[places[at][2] if inside else ELSEWHERE] += count
    return {room: count / counted.total() for room, count in counted.most_common()}


def _places(binary: Path) -> list[tuple[int, int, str]]:
    """Start, end and room of the code of each object."""
    objects = binary.parent / f".{binary.name}.o"
    try:
        text = (objects / "map").read_text()
    except OSError:
        return []
    found = []
    for start, size, name in _OBJECT.findall(text):
        path = Path(name)
        if int(size, 16) and path.is_relative_to(objects):
            room = path.relative_to(objects).parent.as_posix()
            found.append((int(start, 16), int(start, 16) + int(size, 16), "the loop" if room == "." else room))
    return sorted(found)
