"""Captures on a fabric that is up: what goes by at a port for some emulated time, as lines or as a pcapng file."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from hardware.client import FabricdError
from testbed.base.units import format_time
from testbed.live.look.table import Table
from testbed.live.tools import filter as filters
from testbed.live.tools.packets import ECN, Packet, read
from testbed.live.tools.site import Site
from testbed.live.tools.tool import Tool
from testbed.words import kinds
from testbed.words.entry import Parameter
from testbed.words.kinds import Wrong
from topologies.graph.fabric import End

FOR_NS = 20_000.0
MOST = 1000
LONGEST_NS = 20e6
"""What a port of 400 Gb/s carries in it is 1 GB, which is kept in memory."""


def capture(
    site: Site, place: End, lasts: float = FOR_NS, wait: float = 0.0, expression: str = "", output: str | None = None,
    most: int = MOST,
) -> list[Table]:  # fmt: skip
    """Frames that the port sends and receives from now on; `wait`: from the first one on, if one comes by then."""
    if lasts > LONGEST_NS:
        what = f"a capture of {format_time(lasts)} of emulated time is too long"
        raise Wrong(what, f"at most --for {format_time(LONGEST_NS)}")
    test = filters.parse(expression, site.fabric)
    target = None if output is None else Path(output)
    if target is not None and not target.parent.is_dir():
        raise Wrong(f"there is no folder {target.parent}", "-o FILE in a folder that is there")
    name = f"{place.node}:{place.port}"
    before = _frames(site, place) if wait else 0
    path = site.lab.dir / f"look-{place.node}-{place.port}.pcapng"
    try:
        site.request("capture", port=name, path=str(path))
    except FabricdError as error:
        raise Wrong(f"{name}: {error}", "an experiment's own `capture:` has it while its workload runs") from None
    try:
        if not wait or site.until(lambda: _frames(site, place) > before, wait, patient=True):
            site.pass_(lasts)
    finally:
        site.request("capture_stop", path=str(path))
    try:
        packets = [packet for packet in read(path) if test(packet)]
        if target is not None:
            shutil.copyfile(path, target)
    finally:
        path.unlink(missing_ok=True)
    if not packets and not wait and not expression:
        return [
            Table("capture", f"0 frames at {name} in {format_time(lasts)}; --wait TIME waits for the first one", [])
        ]
    rows = [_row(number, packet) for number, packet in enumerate(packets[:most], 1)]
    more = f", the first {most}" if len(packets) > most else ""
    kept = f"; all of the port in {target}" if target is not None else ""
    return [Table("capture", f"{len(packets)} frames at {name}{more}{kept}", rows, _NAMED)]


def _frames(site: Site, place: End) -> int:
    """That have gone by at a port."""
    ports = site.request("counters")["ports"]
    return sum(p["tx_frames"] + p["rx_frames"] for p in ports if (p["node"], p["port"]) == (place.node, place.port))


_NAMED = ("No.", "Length", "QP", "PSN", "DSCP")


def _row(number: int, packet: Packet) -> dict[str, Any]:
    return {
        "No.": number, "Time_us": f"{packet.time_ns / 1000:.3f}", "Dir": "out" if packet.out else "in",
        "Source": packet.src, "Destination": packet.dst, "Protocol": packet.protocol, "Length": packet.length,
        "DSCP": packet.dscp, "ECN": None if packet.ecn is None else ECN[packet.ecn], "QP": packet.qp,
        "PSN": packet.psn, "Info": packet.info,
    }  # fmt: skip


TOOLS = (
    Tool(
        words="capture", about="Capture what goes by at a port or NIC for some emulated time.", use=capture,
        parameters=(
            Parameter("place", kinds.PLACE, "A port (leaf0:1) or a NIC (nic:3, h3).", required=True),
            Parameter("lasts", kinds.TIME, "How long, in emulated time (20us; at most 20ms).", option=True, word="for"),
            Parameter("wait", kinds.TIME, "Begin with the first frame, if it comes in this time (2s).", option=True),
            Parameter("expression", kinds.TEXT, f"Only frames that pass it: {filters.HELP}.", True, word="filter"),
            Parameter("output", kinds.FILE, "A pcapng file for all that the port sees.", option=True, short="-o"),
            Parameter("most", kinds.Number("most", "N", 1, 1_000_000), f"Lines (default: {MOST}).", option=True),
        ),
        samples=("rail0:1 --for 2us", "nic:3 --filter 'roce and ce'", "h0.0 --filter 'opcode == CNP' -o h0.pcapng"),
    ),
)  # fmt: skip
