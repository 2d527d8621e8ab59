"""What keeps the ends of a live fabric's cables from losing frames: pauses (SONiC's pfcstat), credits, retries."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from testbed.live.look.look import Look
from testbed.live.look.table import Table
from testbed.live.views import ports
from testbed.live.views.interfaces import speed
from testbed.live.views.view import View, counting


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


def cables(look: Look) -> list[Table]:
    """Of each port what its cable has, as it is now."""
    links = ports.links(look.now)
    rows = []
    for p in look.now["ports"]:
        if (link := links.get((p["node"], p["port"]))) is None:
            continue
        credits, retry = link.get("credits", {}), link.get("retry")
        rooms = {c["room_bytes"] for c in credits.values()}
        rows.append({
            "Port": ports.name(p), "Peer": p["peer"], "Speed": speed(link["rate_bps"]),
            "Oper": "up" if link["up"] else "down",
            "Flow control": f"credits {','.join(credits)}" if credits else "pfc",
            "Room": max(rooms) if rooms else "N/A", "Replay buffer": retry["buffer_bytes"] if retry else "N/A",
        })  # fmt: skip
    return [Table("cables", "", rows)]


def credits(look: Look) -> list[Table]:
    """What each class under credits may still send, and how often and how long it had to wait (IB's PortXmitWait)."""
    links = ports.links(look.now)
    rows = []
    for p in look.counts["ports"]:
        link = links.get((p["node"], p["port"]), {})
        for c, credit in link.get("credits", {}).items():
            counts = {
                head: p.get("priorities", {}).get(counter.replace("N", c), 0)
                for head, counter in (
                    ("Waits", "tx_wait_prioN"), ("Wait/us", "tx_wait_prioN_duration"),
                    ("Found/bytes", "credits_found_prioN_bytes"),
                )
            }  # fmt: skip
            left = f"{credit['left_bytes']}/{credit['room_bytes']}"
            rows.append({"Port": ports.name(p), "Class": c, "Left/room": left, **counts})
    return [Table("credits", "", rows)]


def retries(look: Look) -> list[Table]:
    """What each port sent once more."""
    links = ports.links(look.now)
    rows = []
    for p in look.counts["ports"]:
        retry = links.get((p["node"], p["port"]), {}).get("retry")
        if retry is None:
            continue
        rows.append({
            "Port": ports.name(p), "Peer": p["peer"], "Used/buffer": f"{retry['used_bytes']}/{retry['buffer_bytes']}",
            **{head: _of(p, counter) for head, counter in (
                ("Replays", "llr_replays"), ("Frames", "llr_replayed_frames"), ("Full", "llr_buffer_full"),
                ("Notes", "link_notes"),
            )},
        })  # fmt: skip
    return [Table("retries", "", rows)]


def _of(port: Mapping[str, Any], counter: str) -> int:
    return int(port.get(counter, 0))


VIEWS = (
    counting(words="pfc", about="Show PFC frames received and sent, by priority, of a live fabric's ports.", make=pfc),
    View(words="cables", about="Show speed, flow control and retries of every cable of a live fabric.", make=cables),
    counting(words="cables credits", about="Show credits that are left, by class, and waits for some.", make=credits),
    counting(words="cables retries", about="Show what was damaged on cables and sent once more.", make=retries),
)
