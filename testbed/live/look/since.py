"""Counters since a moment: what was counted before is left out."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from hardware.tables import FABRICD, entries
from results.frames.columns import CLASS, COLUMNS, GROWS
from testbed.live.look.table import Counters

# The keys that identify a row.
_KEYS = {
    "ports": ("node", "port"),
    "nics": ("rank",),
    "qps": ("rank", "qp"),
    "drops": ("node", "port", "reason"),
    "shown": ("node", "port"),
    "switches": ("switch",),
    "accelerators": ("switch",),
    "groups": ("switch", "set", "port", "weight"),
    "flows": ("switch", "table", "priority", "match"),
}

_RARE = {name for file in FABRICD.rglob("*.def") for _, name, *_ in entries(str(file.relative_to(FABRICD)), "RARE")}
"""Those that are told of only if they are not 0."""
_OF_CLASSES = [name.replace("N", str(c)) for _, name, _, sort, _ in entries(CLASS) if sort != GROWS for c in range(8)]


def since(now: Counters, then: Counters | None) -> Counters:
    if then is None:
        return now
    rows: dict[str, Any] = {}
    for table, keys in _KEYS.items():
        old = {tuple(row[k] for k in keys): row for row in then.get(table, ())}
        kept = {*keys, *_OF_CLASSES, *(column.name for column in COLUMNS.get(table, ()) if column.sort != GROWS)}
        rows[table] = [
            _less(row, _same(row, old.get(tuple(row[k] for k in keys), {})), kept) for row in now.get(table, ())
        ]
    return {**now, **rows}


def _same(row: Mapping[str, Any], old: Mapping[str, Any]) -> Mapping[str, Any]:
    """The old row, unless the new one is another thing: a later job's queue pairs have the same numbers."""
    return {} if row.get("tx_packets", 0) < old.get("tx_packets", 0) else old


def _less(new: Mapping[str, Any], old: Mapping[str, Any], kept: Collection[str]) -> dict[str, Any]:
    """`kept` do not only grow, in the row and within it, such as in a port's priorities."""
    row: dict[str, Any] = {}
    for key, value in new.items():
        if isinstance(value, Mapping):
            row[key] = _less(value, old.get(key, {}), kept)
        elif isinstance(value, int) and not isinstance(value, bool) and key not in kept:
            less = value - old.get(key, 0)
            if less or key not in _RARE:
                row[key] = less
        else:
            row[key] = value
    return row
