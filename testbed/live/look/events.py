"""The order of a log: by emulated time, and where the machine decides who is heard first, by name."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any


def in_order(events: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """fabricd's events. Workers that end at one emulated time are heard in the order in which the kernel has ended
    their processes, switches that lose their controller in the order of its sockets: that says nothing."""
    return sorted(events, key=_when)


def _when(event: dict[str, Any]) -> tuple[float, int, str]:
    kind = event["event"]
    if kind == "worker_lost":
        return event["time_ns"], event["rank"], ""
    if kind == "note":  # of whom it says something
        return event["time_ns"], -1, event["text"].partition(": ")[0]
    return event["time_ns"], -1, ""
