"""Counters since a moment: what was counted before is left out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from testbed.live.look.table import Counters

# The keys that identify a row, and the columns that are not counters.
_KEYS = {
    "ports": ("node", "port"),
    "nics": ("rank",),
    "qps": ("rank", "qp"),
    "drops": ("node", "port", "reason"),
    "shown": ("node", "port"),
    "switches": ("switch",),
    "accelerators": ("switch",),
    "flows": ("switch", "table", "priority", "match"),
}
_STATES = {
    *("port", "rank", "qp", "peer", "peer_qp", "rate_bps", "window_bytes", "udp_src_port", "engine_used_bytes"),
    *("table", "priority", "buffer_bytes", "buffer_used_bytes"),
    *("ip", "slots", "slots_free", "elements", "fan_in", "shared_slots", "shared_used"),
}


def since(now: Counters, then: Counters | None) -> Counters:
    """What was counted after `then`."""
    if then is None:
        return now
    rows: dict[str, Any] = {}
    for table, keys in _KEYS.items():
        old = {tuple(row[k] for k in keys): row for row in then.get(table, ())}
        rows[table] = [_less(row, _same(row, old.get(tuple(row[k] for k in keys), {}))) for row in now.get(table, ())]
    return {**now, **rows}


def _same(row: Mapping[str, Any], old: Mapping[str, Any]) -> Mapping[str, Any]:
    """The old row, unless the new one is another thing: a later job's queue pairs have the same numbers."""
    return {} if row.get("tx_packets", 0) < old.get("tx_packets", 0) else old


def _less(new: Mapping[str, Any], old: Mapping[str, Any]) -> dict[str, Any]:
    row: dict[str, Any] = {}
    for key, value in new.items():
        if isinstance(value, Mapping):
            row[key] = _less(value, old.get(key, {}))
        elif isinstance(value, int) and not isinstance(value, bool) and key not in _STATES and "_max" not in key:
            row[key] = value - old.get(key, 0)
        else:
            row[key] = value
    return row
