"""What views of ports have in common: names, priorities, cables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from testbed.live.look.look import Look
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


def drops(look: Look, port: Mapping[str, Any]) -> dict[str, int]:
    """A port's drops by reason, as far as one may see: injected losses by what a counter calls them, or not at all."""
    if look.sight.drops == "asic":
        return {}
    if look.sight.drops == "all":
        return dict(port["drops"])
    return {k: v for k, v in port["drops"].items() if k != "fault"} | called(look, port)


def called(look: Look, port: Mapping[str, Any]) -> dict[str, int]:
    """Its injected losses, by what a counter calls them; silent ones are in none."""
    row = look.shown.get((port["node"], port["port"]), {})
    return {reason: row[reason] for reason in ("crc", "acl", "meter") if row.get(reason)}


def stomped(port: Mapping[str, Any]) -> int:
    """Frames that came in with a checksum that a cut-through switch had made wrong."""
    return int(port.get("rx_stomped_crc", 0))


def cut_off(look: Look, port: Mapping[str, Any]) -> int:
    """Of its drops `cable`: what was on its way to it when the cable was cut. The others it could not send."""
    return int(look.shown.get((port["node"], port["port"]), {}).get("cut_off", 0))


def rx_full(look: Look, port: Mapping[str, Any]) -> int:
    """Of its drops `no_receive_buffer`: those for a full buffer of the NIC. For the others no receive was posted."""
    return int(look.shown.get((port["node"], port["port"]), {}).get("rx_full", 0))


def without_injected(look: Look, port: Mapping[str, Any], counter: str) -> list[int]:
    """As `by_priority` of a counter of drops, without injected losses: no queue has dropped those."""
    row = look.shown.get((port["node"], port["port"]), {})
    return [v - row.get(counter.replace("N", str(c)), 0) for c, v in enumerate(by_priority(port, counter))]
