"""Queues of switches, and how full they were (SONiC's queuestat and watermarkstat)."""

from __future__ import annotations

from testbed.live.look.look import Look
from testbed.live.look.table import Table
from testbed.live.views import ports
from testbed.live.views.view import View, counting


def queues(look: Look) -> list[Table]:
    """As `show queue counters`, `show queue watermark unicast` and `show priority-group watermark`."""
    return [*counters(look), *watermarks(look), *groups(look)]


def counters(look: Look) -> list[Table]:
    rows = []
    for p in ports.switch_ports(look.counts):
        sent = (ports.by_priority(p, name) for name in ("tx_prioN_packets", "tx_prioN_bytes"))
        lost = (ports.without_injected(look, p, name) for name in ("drops_prioN", "drop_bytes_prioN"))
        for c, one in enumerate(zip(*sent, *lost, strict=True)):
            heads = ("Counter/pkts", "Counter/bytes", "Drop/pkts", "Drop/bytes")
            row = {"Port": ports.name(p), "TxQ": f"UC{c}", **dict(zip(heads, one, strict=True))}
            if look.sight.drops == "asic":
                row |= {"Drop/pkts": "N/A", "Drop/bytes": "N/A"}
            rows.append(row)
    return [Table("queues", "", rows)]


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
    View(
        words="priority-group watermark",
        about="Show how much each priority group of a live fabric's ports has held, shared and in headroom.",
        make=groups,
    ),
)
