"""A table of measured times as CSV: collective, nodes, gpus_per_node, size_bytes, time_us; `#` begins a comment."""

from __future__ import annotations

from collections.abc import Iterable

from testbed.logs.row import Log, Row, named, number, whole
from testbed.logs.text import Line

NEEDED = ("collective", "nodes", "gpus_per_node", "size_bytes", "time_us")


def columns(text: str) -> list[str] | None:
    """Those of a line, if it begins such a table."""
    words = [word.strip() for word in text.split(",")]
    return words if set(NEEDED) <= set(words) else None


def read(lines: Iterable[Line], file: str, log: Log) -> int:
    """Adds its rows; returns how many it has."""
    names: list[str] | None = None
    found = 0
    for line in lines:
        text = line.text.strip()
        if not text or text.startswith("#"):
            continue
        if made := columns(text):
            names = made
            continue
        if names is None:
            continue
        found += 1
        cells = dict(zip(names, (word.strip() for word in text.split(",")), strict=False))
        place = f"{file}:{line.number}"
        collective = named(cells.get("collective", ""))
        nodes, gpus, size = (whole(cells.get(key, "")) for key in ("nodes", "gpus_per_node", "size_bytes"))
        time = number(cells.get("time_us", ""))
        if not (collective and nodes and gpus and size and time):
            log.leave_out("cut, or not to be read", place, f"a row has {', '.join(NEEDED)}")
            continue
        spread = number(cells.get("spread", ""))
        log.add(Row(file, line.number, collective, size, time * 1000.0, nodes, gpus, cells.get("type", ""), spread))
    return found
