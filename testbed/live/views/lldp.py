"""Who is at the other end of each cable, as LLDP has found out (SONiC's lldpshow)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from testbed.live.look.look import Look
from testbed.live.look.table import Table
from testbed.live.views import ports
from testbed.live.views.view import View


def neighbors(look: Look) -> list[Table]:
    """As `show lldp table`: a neighbour is found where its frames come in, so not over a link that is down or deaf.

    As it is when LLDP has had its time: fabrics live for less than its period of 30 s.
    """
    links, deaf = ports.links(look.now), _lose_everything(look)
    nodes = {s["switch"]: "BR" for s in look.now["switches"]} | {nic.name: "O" for nic in look.fabric.nics}
    rows = []
    for p in look.now["ports"]:
        link = links.get((p["node"], p["port"]))
        if link is None or not link["up"] or p["peer"] in deaf:
            continue
        device, _, port = p["peer"].rpartition(":")
        if device not in nodes:  # a switch's own accelerator
            continue
        rows.append({
            "LocalPort": ports.name(p), "RemoteDevice": device, "RemotePortID": port, "Capability": nodes[device],
            "RemotePortDescr": p["peer"],
        })  # fmt: skip
    return [Table("lldp", "Capability codes: (R) Router, (B) Bridge, (O) Other", rows)]


def _lose_everything(look: Look) -> set[str]:
    """Ports of which no frame comes out at the other end."""
    return {port for fault in look.faults if fault["on"] and _everything(fault) for port in fault["request"]["ports"]}


def _everything(fault: Mapping[str, Any]) -> bool:
    request = fault["request"]
    every = not request.get("select") and not request.get("match")
    return bool(fault["primitive"] == "frames" and request["effect"] == "drop" and every)


VIEWS = (
    View(
        words="lldp neighbors", about="Show which port of which device is at the other end of each cable.",
        make=neighbors,
    ),
)  # fmt: skip
