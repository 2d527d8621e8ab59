"""What views of ports have in common: names, priorities, cables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from testbed.live.look.table import Counters

CLASSES = range(8)


def switch_ports(counters: Counters) -> list[Mapping[str, Any]]:
    switches = {s["switch"] for s in counters["switches"]}
    return [p for p in counters["ports"] if p["node"] in switches]


def name(port: Mapping[str, Any]) -> str:
    return f"{port['node']}:{port['port']}"


def by_priority(port: Mapping[str, Any], counter: str) -> list[int]:
    """The eight values of a counter such as `rx_prioN_pause`."""
    return [port.get("priorities", {}).get(counter.replace("N", str(c)), 0) for c in CLASSES]


def links(counters: Counters) -> dict[tuple[str, int], Mapping[str, Any]]:
    return {(link["node"], link["port"]): link for link in counters.get("links", ())}
