"""Pauses of a live fabric, and what the PFC watchdog made of them (SONiC's pfcstat)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from testbed.live.look.look import Look
from testbed.live.look.table import Table
from testbed.live.views import ports
from testbed.live.views.view import counting


def pfc(look: Look) -> list[Table]:
    """As `show pfc counters`: PFC frames received and sent by priority, of switch ports and NICs."""
    cabled = [p for p in look.counts["ports"] if p["peer"]]
    switches = ports.switch_ports(look.counts)

    def table(name: str, title: str, column: str, of: list[Mapping[str, Any]], counter: str) -> Table:
        rows = [
            {column: ports.name(p)} | {f"PFC{c}": v for c, v in enumerate(ports.by_priority(p, counter))} for p in of
        ]
        return Table(name, title, rows)

    return [
        table("rx", "", "Port Rx", cabled, "rx_prioN_pause"),
        table("tx", "", "Port Tx", cabled, "tx_prioN_pause"),
        table("pauses", "RX pause time (us)", "Port", cabled, "rx_prioN_pause_duration"),
        table("watchdog", "Storms that the PFC watchdog saw", "Port", switches, "pfcwd_storms_prioN"),
    ]


VIEWS = (
    counting(words="pfc", about="Show PFC frames received and sent, by priority, of a live fabric's ports.", make=pfc),
)
