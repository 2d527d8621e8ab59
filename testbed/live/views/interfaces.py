"""The interfaces of a live fabric: what state they are in, what they carried (SONiC's portstat and intfutil)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from testbed.live.look.look import Look
from testbed.live.look.table import Table
from testbed.live.views import ports
from testbed.live.views.view import View, counting

GAP_BYTES = 20
"""Preamble and gap of a frame: on the cable, and in no counter of bytes."""
_TX_DROPS = ("lossy", "cable", "mtu", "watchdog", "ttl")
"""Reasons that are counted at the egress port; all others are counted at the ingress port."""
_RX_ERRORS = ("icrc", "malformed")


def counters(look: Look) -> list[Table]:
    """As `show interfaces counters`."""
    before = {} if look.before is None else {ports.name(p): p for p in look.before["ports"]}
    passed_ns = 0 if look.before is None else look.now["time_ns"] - look.before["time_ns"]
    now = {ports.name(p): p for p in look.now["ports"]}
    links = ports.links(look.now)
    rows = []
    for p in ports.switch_ports(look.counts):
        link = links.get((p["node"], p["port"]), {})
        row: dict[str, Any] = {"IFACE": ports.name(p), "STATE": "U" if link.get("up") else "D"}
        for way, dropped in (("rx", p["drops"].keys() - {*_TX_DROPS, *_RX_ERRORS}), ("tx", {*_TX_DROPS})):
            errors = sum(p["drops"].get(why, 0) for why in _RX_ERRORS) if way == "rx" else 0
            rate, use = _rate(now[ports.name(p)], before.get(ports.name(p)), way, passed_ns, link.get("rate_bps", 0))
            head = way.upper()
            row |= {
                f"{head}_OK": p[f"{way}_frames"], f"{head}_BPS": rate, f"{head}_UTIL": use, f"{head}_ERR": errors,
                f"{head}_DRP": sum(p["drops"].get(why, 0) for why in dropped), f"{head}_OVR": 0,
            }  # fmt: skip
        rows.append(row)
    return [Table("counters", "", rows)]


def _rate(
    now: Mapping[str, Any], before: Mapping[str, Any] | None, way: str, passed_ns: float, speed: int
) -> tuple[str, str]:
    """Bytes per second of emulated time, and the share of the cable that they take with preamble and gap."""
    if before is None or passed_ns <= 0:
        return "N/A", "N/A"
    rate = (now[f"{way}_bytes"] - before[f"{way}_bytes"]) * 1e9 / passed_ns
    gaps = (now[f"{way}_frames"] - before[f"{way}_frames"]) * GAP_BYTES * 1e9 / passed_ns
    return bytes_per_second(rate), f"{(rate + gaps) * 8 / speed:.2%}" if speed else "N/A"


def bytes_per_second(rate: float) -> str:
    """As SONiC writes it: `12.50 MB/s`."""
    for unit, size in (("GB/s", 1e9), ("MB/s", 1e6), ("KB/s", 1e3)):
        if rate > 10 * size or (unit == "GB/s" and rate >= size):
            return f"{rate / size:.2f} {unit}"
    return f"{rate:.2f} B/s"


def status(look: Look) -> list[Table]:
    """As `show interfaces status`, of switches and NICs. A switch's MTU is any, unless a fault limits it."""
    links = ports.links(look.now)
    mtu = look.source.experiment["fabric"]["nic"]["mtu"]
    nics = {n["nic"] for n in look.now["nics"]}
    rows = []
    for p in look.now["ports"]:
        if (link := links.get((p["node"], p["port"]))) is not None:
            rows.append({
                "Interface": ports.name(p), "Speed": _speed(link["rate_bps"]),
                "MTU": link["mtu"] or (mtu if p["node"] in nics else 0) or "any",
                "Oper": "up" if link["up"] else "down", "Admin": "up", "Peer": p["peer"],
            })  # fmt: skip
    return [Table("interfaces", "", rows)]


def _speed(bps: int) -> str:
    return f"{bps / 1e9:g}G" if bps >= 1e9 else f"{bps / 1e6:g}M"


VIEWS = (
    View(
        words="interfaces status", about="Show speed, MTU, state and peer of every port of a live fabric.", make=status
    ),
    counting(
        words="interfaces counters",
        about="Show frames, rates and drops of a live fabric's switches.",
        make=counters,
        rated=True,
    ),
)
