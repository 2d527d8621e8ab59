"""A fabric as a page draws it: its picture, its cables by their ends, its nodes; and its ports' figures as rows."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from topologies.drawing import as_svg
from topologies.graph.fabric import Cable, Fabric, TopologyError
from topologies.graph.smartnic import without_complexes
from topologies.graph.targets import CableTarget, FlowTarget, NicTarget, PortTarget, SwitchTarget, resolve

Counters = Mapping[str, Any]

COLUMNS = (
    "up", "rate_bps", "queue_bytes", "queue_max_bytes", "paused", "tx_frames", "tx_bytes", "rx_frames", "rx_bytes",
    "drops", "ecn_marked", "tx_pause", "rx_pause",
)  # fmt: skip
"""A port's row in `ports`: what it is now, then what it has counted."""


class Network:
    """A fabric as it is drawn.  A cable of a SmartNIC is drawn from its host; its ports are those of the real one."""

    def __init__(self, fabric: Fabric) -> None:
        self.fabric = fabric
        self._plain = without_complexes(fabric)
        self._drawn = {self._real(cable).name: cable for cable in self._plain.cables}

    def about(self) -> dict[str, Any]:
        """What stays as it is: the drawing, both ports of each cable in it, and what each node is."""
        nics = [(n.name, n.rank, f"rank {n.rank}, {n.ip}, {n.mac}") for n in self._plain.nics]
        switches = [(s.name, None, f"{s.role}, {s.ports} ports") for s in self._plain.switches]
        return {
            "svg": as_svg(self.fabric, heading=False),
            "cables": [self._ends(cable) for cable in self._plain.cables],
            "nodes": [{"name": name, "rank": rank, "about": about} for name, rank, about in [*nics, *switches]],
        }

    def places(self, target: str) -> dict[str, list[str]]:
        """The cables and nodes that a fault's target stands for, by their names in the drawing."""
        cables: list[Cable] = []
        nodes: list[str] = []
        with suppress(TopologyError):
            match resolve(self.fabric, target):
                case CableTarget(cable) | PortTarget(cable=cable):
                    cables = [self._drawn[cable.name]] if cable.name in self._drawn else []
                case NicTarget(nic):
                    nodes = [nic.name]
                case SwitchTarget(switch):
                    nodes = [switch.name]
                case FlowTarget(source, destination):
                    nodes = [source.name, destination.name]
        return {"cables": [cable.name for cable in cables], "nodes": nodes}

    def _ends(self, cable: Cable) -> dict[str, Any]:
        real = self._real(cable)
        a, b = (real.a, real.b) if real.a == cable.a or real.b == cable.b else (real.b, real.a)
        ends = [f"{end.node}:{end.port}" for end in (a, b)]
        return {"name": cable.name, "nodes": [cable.a.node, cable.b.node], "ends": ends}

    def _real(self, cable: Cable) -> Cable:
        end = cable.a if cable.a.node in self.fabric.switch_by_name else cable.b
        return self.fabric.cable_at[end.node, end.port]


def ports(counters: Counters) -> dict[str, list[int]]:
    """Each port's row of COLUMNS, by `NODE:PORT`."""
    links = {(link["node"], link["port"]): link for link in counters["links"]}
    rows = {}
    for port in counters["ports"]:
        link = links.get((port["node"], port["port"]))
        if link is None:
            continue
        classes = port["priorities"].items()
        rows[f"{port['node']}:{port['port']}"] = [
            int(link["up"]), link["rate_bps"], link["queue_bytes"], port["queue_max_bytes"], link["paused"],
            port["tx_frames"], port["tx_bytes"], port["rx_frames"], port["rx_bytes"],
            sum(port["drops"].values()), port["ecn_marked"],
            sum(n for name, n in classes if name.startswith("tx_") and name.endswith("_pause")),
            sum(n for name, n in classes if name.startswith("rx_") and name.endswith("_pause")),
        ]  # fmt: skip
    return rows
