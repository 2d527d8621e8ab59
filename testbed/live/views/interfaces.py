"""The interfaces of a live fabric: their state, what they carried, their errors (SONiC's intfutil and portstat)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from testbed.live.look.look import Look
from testbed.live.look.table import Table
from testbed.live.views import ports
from testbed.live.views.view import View, counting
from topologies.graph.frames import GAP_BYTES

_TX_DROPS = ("lossy", "trimmed", "cable", "mtu", "watchdog", "ttl")
"""Reasons that are counted at the egress port; all others are counted at the ingress port."""
MTU = 9100
"""Of a port of SONiC, unless configured: all that NICs here send fits in."""
_RX_ERRORS = ("icrc", "malformed", "crc", "stomped", "cut_off")


def counters(look: Look) -> list[Table]:
    before = {} if look.before is None else {ports.name(p): p for p in look.before["ports"]}
    passed_ns = 0 if look.before is None else look.now["time_ns"] - look.before["time_ns"]
    now = {ports.name(p): p for p in look.now["ports"]}
    links = ports.links(look.now)
    rows = []
    for p in ports.switch_ports(look.counts):
        name, link = ports.name(p), links.get((p["node"], p["port"]), {})
        row: dict[str, Any] = {"IFACE": name, "STATE": "U" if link.get("up") else "D"}
        failed = _failed(look, p)
        for way in ("rx", "tx"):
            rate, use = _rate(now[name], before.get(name), way, passed_ns, link.get("rate_bps", 0))
            head = way.upper()
            row |= {
                f"{head}_OK": p[f"{way}_frames"], f"{head}_BPS": rate, f"{head}_UTIL": use,
                **{k: v for k, v in failed.items() if k.startswith(head)},
            }  # fmt: skip
        rows.append(row)
    return [Table("counters", "", rows)]


def _failed(look: Look, p: Mapping[str, Any]) -> dict[str, Any]:
    """A port's errors, drops and overruns; what no counter of a switch counts is not among them."""
    if look.sight.drops == "asic":
        return {f"{way}_{what}": "N/A" for way in ("RX", "TX") for what in ("ERR", "DRP", "OVR")}
    drops = {k: v for k, v in p["drops"].items() if k != "fault"} | ports.called(look, p)
    if broken_off := ports.cut_off(look, p):
        drops |= {"cable": drops["cable"] - broken_off, "cut_off": broken_off}
    return {
        "RX_ERR": sum(drops.get(why, 0) for why in _RX_ERRORS),
        "RX_DRP": sum(n for why, n in drops.items() if why not in (*_TX_DROPS, *_RX_ERRORS)),
        "RX_OVR": 0, "TX_ERR": 0, "TX_DRP": sum(drops.get(why, 0) for why in _TX_DROPS), "TX_OVR": 0,
    }  # fmt: skip


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


def errors(look: Look) -> list[Table]:
    """As `show interfaces counters errors`, with what the far end of a bad link counts, of switches and NICs.

    A frame that a lossy link loses comes in with a wrong checksum: its last codeword could not be corrected.
    """
    links = ports.links(look.now)
    rows = []
    cuts = any(map(ports.stomped, look.now["ports"]))  # of switches that store no frame is sent on with a wrong one
    for p in look.counts["ports"]:
        if (link := links.get((p["node"], p["port"]))) is None:
            continue
        bad = "N/A" if look.sight.drops == "asic" else ports.called(look, p).get("crc", 0)
        line = dict.fromkeys(("RX_CRC", "RX_SYMBOL", "FEC_UNCORR"), bad)
        if cuts:
            line["RX_STOMPED"] = ports.stomped(p)
        state = "U" if link["up"] else "D"
        rows.append({"IFACE": ports.name(p), "STATE": state, "PEER": p["peer"], **_failed(look, p), **line})
    return [Table("errors", "", rows)]


def status(look: Look) -> list[Table]:
    """As `show interfaces status`, of switches and NICs. A switch's MTU is SONiC's, unless something limits it."""
    links = ports.links(look.now)
    mtu = look.source.experiment["fabric"]["nic"]["mtu"]
    nics = {n["nic"] for n in look.now["nics"]}
    shut = {f["request"].get("shut") for f in look.faults if f["on"]}
    rows = []
    for p in look.now["ports"]:
        if (link := links.get((p["node"], p["port"]))) is not None:
            rows.append({
                "Interface": ports.name(p), "Speed": speed(link["rate_bps"]),
                "MTU": link["mtu"] or (mtu if p["node"] in nics else MTU),
                "Oper": "up" if link["up"] else "down", "Admin": "down" if ports.name(p) in shut else "up",
                "Peer": p["peer"],
            })  # fmt: skip
    return [Table("interfaces", "", rows)]


def speed(bps: float) -> str:
    """As intfutil writes it: `400G`."""
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
    counting(
        words="interfaces errors",
        about="Show errors and drops of every port of a live fabric: checksums, symbols, codewords.",
        make=errors,
    ),
)
