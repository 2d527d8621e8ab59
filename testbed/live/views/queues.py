"""Queues of switches, how full they were, what was trimmed there (SONiC's queuestat, watermarkstat, switchstat)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from testbed.live.look.look import Look
from testbed.live.look.table import Table
from testbed.live.views import ports
from testbed.live.views.view import View, counting

_TRIMMED = {"": "trim_packets_prioN", "Sent": "tx_trim_packets_prioN", "Drop": "dropped_trim_packets_prioN"}
"""SAI_.._STAT_TRIM_PACKETS, TX_TRIM_PACKETS, DROPPED_TRIM_PACKETS; the first is of the queue that had no place."""


def queues(look: Look) -> list[Table]:
    """As `show queue counters`, `show queue watermark unicast` and `show priority-group watermark`."""
    return [*counters(look), *watermarks(look), *groups(look)]


def counters(look: Look) -> list[Table]:
    rows = []
    trims = any(sum(_trimmed(p).values()) for p in ports.switch_ports(look.now))
    for p in ports.switch_ports(look.counts):
        trimmed = _trimmed_by_queue(p) if trims else [{}] * len(ports.CLASSES)
        sent = (ports.by_priority(p, name) for name in ("tx_prioN_packets", "tx_prioN_bytes"))
        lost = (ports.without_injected(look, p, name) for name in ("drops_prioN", "drop_bytes_prioN"))
        for c, one in enumerate(zip(*sent, *lost, strict=True)):
            heads = ("Counter/pkts", "Counter/bytes", "Drop/pkts", "Drop/bytes")
            row = {"Port": ports.name(p), "TxQ": f"UC{c}", **dict(zip(heads, one, strict=True)), **trimmed[c]}
            if look.sight.drops == "asic":
                row |= {"Drop/pkts": "N/A", "Drop/bytes": "N/A"}
            rows.append(row)
    return [Table("queues", "", rows)]


def _trimmed_by_queue(port: Mapping[str, Any]) -> list[dict[str, int]]:
    """Columns of `show queue counters`, by class."""
    counted = [ports.by_priority(port, counter) for counter in _TRIMMED.values()]
    heads = [f"Trim{what}/pkts" for what in _TRIMMED]
    return [dict(zip(heads, values, strict=True)) for values in zip(*counted, strict=True)]


def _trimmed(port: Mapping[str, Any]) -> dict[str, int]:
    """All classes of a port together."""
    return {what: sum(ports.by_priority(port, counter)) for what, counter in _TRIMMED.items()}


def trimmed_by_switches(look: Look) -> list[Table]:
    totals: dict[str, dict[str, int]] = {switch.name: {} for switch in look.fabric.switches}
    for port in ports.switch_ports(look.counts):
        for what, count in _trimmed(port).items():
            totals[port["node"]][what] = totals[port["node"]].get(what, 0) + count
    rows = [
        {"Switch": name, "TrimSent/pkts": total.get("Sent", 0), "TrimDrop/pkts": total.get("Drop", 0)}
        for name, total in totals.items()
    ]
    return [Table("trim", "", rows)]


def trimmed_by_ports(look: Look) -> list[Table]:
    rows, links = [], ports.links(look.now)
    for port in ports.switch_ports(look.counts):
        heads = {"": "TRIM_PKTS", "Sent": "TRIM_TX_PKTS", "Drop": "TRIM_DRP_PKTS"}
        state = "U" if links.get((port["node"], port["port"]), {}).get("up") else "D"
        rows.append({"IFACE": ports.name(port), "STATE": state, **{heads[k]: v for k, v in _trimmed(port).items()}})
    return [Table("trim", "", rows)]


def watermarks(look: Look) -> list[Table]:
    return [_watermark(look, "watermark", "Egress queue", "queue_max_prioN_bytes", "UC")]


def groups(look: Look) -> list[Table]:
    """As `show priority-group watermark shared` and `headroom`."""
    return [
        _watermark(look, "shared", "Ingress shared pool by priority group", "ingress_max_prioN_bytes", "PG"),
        _watermark(look, "headroom", "Ingress headroom by priority group", "headroom_max_prioN_bytes", "PG"),
    ]


def _watermark(look: Look, name: str, title: str, counter: str, column: str) -> Table:
    rows = [
        {"Port": ports.name(p)} | {f"{column}{c}": v for c, v in enumerate(ports.by_priority(p, counter))}
        for p in ports.switch_ports(look.counts)
    ]
    since = "the most since the fabric came up or its last job began (bytes)"
    return Table(name, f"{title}, {since}", rows, watermarks=True)


VIEWS = (
    counting(words="queues", about="Show queue counters and watermarks of a live fabric's switches.", make=queues),
    counting(words="queue counters", about="Show what each queue of a live fabric's switches sent.", make=counters),
    View(words="queue watermark", about="Show how full each queue of a live fabric has been.", make=watermarks),
    counting(
        words="switch counters trim",
        about="Show what switches of a live fabric have trimmed.",
        make=trimmed_by_switches,
    ),
    counting(
        words="interfaces counters trim", about="Show what a live fabric's ports have trimmed.", make=trimmed_by_ports
    ),
    View(
        words="priority-group watermark",
        about="Show how much each priority group of a live fabric's ports has held, shared and in headroom.",
        make=groups,
    ),
)
