"""Queues of switches, and how full they were (SONiC's queuestat and watermarkstat)."""

from __future__ import annotations

from testbed.live.look.look import Look
from testbed.live.look.table import Table
from testbed.live.views import ports
from testbed.live.views.view import counting


def queues(look: Look) -> list[Table]:
    """As `show queue counters`, `show queue watermark unicast` and `show priority-group watermark`."""
    switches = ports.switch_ports(look.counts)
    counted = []
    for p in switches:
        names = ("tx_prioN_packets", "tx_prioN_bytes", "drops_prioN", "drop_bytes_prioN")
        for c, one in enumerate(zip(*(ports.by_priority(p, name) for name in names), strict=True)):
            heads = ("Counter/pkts", "Counter/bytes", "Drop/pkts", "Drop/bytes")
            counted.append({"Port": ports.name(p), "TxQ": f"UC{c}", **dict(zip(heads, one, strict=True))})

    def watermark(name: str, title: str, counter: str, column: str) -> Table:
        rows = [
            {"Port": ports.name(p)} | {f"{column}{c}": v for c, v in enumerate(ports.by_priority(p, counter))}
            for p in switches
        ]
        return Table(
            name, f"{title}, the most since the fabric came up or its last job began (bytes)", rows, watermarks=True
        )

    return [
        Table("queues", "", counted),
        watermark("watermark", "Egress queue", "queue_max_prioN_bytes", "UC"),
        watermark("shared", "Ingress shared pool by priority group", "ingress_max_prioN_bytes", "PG"),
        watermark("headroom", "Ingress headroom by priority group", "headroom_max_prioN_bytes", "PG"),
    ]


VIEWS = (
    counting(words="queues", about="Show queue counters and watermarks of a live fabric's switches.", make=queues),
)
