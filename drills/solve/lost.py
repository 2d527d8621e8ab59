"""Lost frames: those that a port has counted, and those that nobody has."""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import pairwise

from drills.solve.desk import RECENT_NS, Desk, Row, number
from drills.solve.finding import Finding
from drills.solve.host import rate
from drills.solve.mending import new_cable
from topologies.graph.fabric import End

UNDER_WAY = 12
"""Frames that may be on a cable, or in a port, when counters of both ends are read: at least."""
ON_CABLE_NS, IN_PORT_NS = 500.0, 200.0
"""Of a cable of 100 m, if the plan says nothing else; in the ports at its ends."""
ANSWER_BYTES = 128
LOOKS = 4
"""Frames that are lost become more from look to look, those under way do not."""
BIN_NS = 10_000.0
BINS = 40
REGULAR = 6  # errors, at least
FRAMES = 8  # in a bin, at least
UNEVEN = 4.0  # variance over mean; 1 if each frame is lost by itself


def damaged(desk: Desk) -> list[Finding]:
    """CRC errors grow at the ends of a cable."""
    counts: dict[str, dict[str, float]] = {}
    for row in desk.recent("show interfaces errors", of_ns=1_200_000.0):
        cable = desk.cable(str(row["IFACE"]))
        if cable is not None and number(row, "RX_CRC") > 0:
            counts.setdefault(cable.name, {})[str(row["IFACE"])] = number(row, "RX_CRC")
    found = []
    for name, ports in counts.items():
        cable = desk.cable(next(iter(ports)))
        assert cable is not None
        why = ", ".join(f"{port} has {count:g} CRC errors" for port, count in ports.items())
        found.append(Finding(_how(desk, ports), f"cable:{name}", why, new_cable(desk, cable)))
    return found


def _how(desk: Desk, errors: dict[str, float]) -> str:
    """Every n-th frame, in bursts, or now and then: by how the errors of the worse end lie in time."""
    port = max(errors, key=lambda p: errors[p])
    crc = [_of(desk, "errors", port, "RX_CRC", k) for k in range(1, BINS + 1)]
    came = [_of(desk, "counters", port, "RX_OK", k) + lost for k, lost in enumerate(crc, 1)]
    if not crc[-1]:
        return "loss"
    every = came[-1] / crc[-1]
    grows = crc[0] < crc[-1]
    if grows and crc[-1] >= REGULAR and all(abs(n - all_ / every) <= 1.01 for n, all_ in zip(crc, came, strict=True)):
        return "drop_every"
    gone = [now - before for before, now in pairwise([0.0, *crc])]
    frames = [now - before for before, now in pairwise([0.0, *came])]
    share = max((lost / n for lost, n in zip(gone, frames, strict=True) if n >= FRAMES), default=0.0)
    mean = sum(gone) / BINS
    spread = sum((x - mean) ** 2 for x in gone) / BINS / mean
    return "burst_loss" if spread > UNEVEN and share > 0.5 else "loss"


def _of(desk: Desk, view: str, port: str, column: str, bins: int) -> float:
    rows = desk.recent(f"show interfaces {view}", of_ns=bins * BIN_NS)
    return next((number(row, column) for row in rows if row["IFACE"] == port), 0.0)


def missing(desk: Desk, of_ns: float = RECENT_NS, *, dropped: bool = True) -> dict[str, float]:
    """By port: frames that it has sent and its peer has neither received nor counted. Below zero: too many.

    `of_ns`: in the last so many, 0 for all that was ever counted. A port that has counted nothing of late has no row.
    `dropped`: what the peer has dropped for want of room counts beside what it has received; some of it is in both.
    """
    ports, ranks = (
        desk.recent(view, of_ns=of_ns) if of_ns else desk.rows(view)
        for view in ("show interfaces counters", "show nics")
    )
    rows = {str(r["IFACE"]): r for r in ports}
    nics = {desk.plan.nics[int(r["rank"])].name: r for r in ranks}
    found = {}
    for cable in desk.plan.cables if rows else ():
        for end, other in ((cable.a, cable.b), (cable.b, cable.a)):
            found[f"{end.node}:{end.port}"] = _sent(end, desk, rows, nics) - _came(other, desk, rows, nics, dropped)
    return found


def _sent(end: End, desk: Desk, rows: dict[str, Row], nics: dict[str, Row]) -> float:
    if end.node in desk.plan.nic_by_name:
        return number(nics.get(end.node, {}), "tx_packets_phy")
    return number(rows.get(f"{end.node}:{end.port}", {}), "TX_OK")


def _came(end: End, desk: Desk, rows: dict[str, Row], nics: dict[str, Row], dropped: bool) -> float:
    if end.node in desk.plan.nic_by_name:
        row = nics.get(end.node, {})
        return number(row, "rx_packets_phy") + number(row, "rx_crc_errors_phy")
    row = rows.get(f"{end.node}:{end.port}", {})
    return number(row, "RX_OK") + number(row, "RX_ERR") + (number(row, "RX_DRP") if dropped else 0.0)


def under_way(desk: Desk) -> dict[str, float]:
    """By port: how many frames its cable may hold, of the size that data have there on the average.

    Of answers there are no more than of what they answer, wherever that is.
    """
    sizes: dict[str, float] = {}
    for row in desk.rows("show queue counters"):
        size = number(row, "Counter/bytes") / max(1.0, number(row, "Counter/pkts"))
        if size > ANSWER_BYTES:
            port = str(row["Port"])
            sizes[port] = min(size, sizes.get(port, size))
    least = min(sizes.values(), default=math.inf)
    speed = {str(row["Interface"]): rate(str(row["Speed"])) for row in desk.rows("show interfaces status")}
    found = {}
    for cable in desk.plan.cables:
        ends = [f"{end.node}:{end.port}" for end in (cable.a, cable.b)]
        size = min((sizes[port] for port in ends if port in sizes), default=least)
        on_cable_ns = ON_CABLE_NS if cable.delay_ns is None else cable.delay_ns
        holds = max(speed.get(port, 0.0) for port in ends) / 8e9 * (on_cable_ns + IN_PORT_NS)
        found.update(dict.fromkeys(ends, max(UNDER_WAY, holds / size)))
    return found


def vanished(desk: Desk) -> list[Finding]:
    """TX here, no RX there, and no counter of it. Is it little, and somebody waits in vain, it is looked at again."""
    for look in range(1, LOOKS + 1):
        rows = desk.recent("show nics", of_ns=look * RECENT_NS)
        waits = any(number(row, "local_ack_timeout_err") > 0 for row in rows)
        if not waits and not any(number(row, "packet_seq_err") > 0 for row in rows):
            return []  # nobody misses anything: frames are under way
        gone = _gone(desk, look * RECENT_NS)
        if gone:
            return _where(desk, gone)
        if desk.stands or not waits:
            return []
        desk.pass_(RECENT_NS)
    return []


def _gone(desk: Desk, of_ns: float) -> dict[str, float]:
    """By port: more than may be under way. If the job stands nothing is."""
    found, held = missing(desk, of_ns), under_way(desk)
    most = max([*found.values(), 0.0])
    return {port: n for port, n in found.items() if n >= max(1 if desk.stands else held[port], 0.2 * most)}


def _where(desk: Desk, gone: Mapping[str, float]) -> list[Finding]:
    """A cable, or a switch from which less comes than it sends, on more than one cable."""
    stands = desk.stands
    why = ", ".join(f"{port} sent {n:g} that never came" for port, n in gone.items())
    came = {str(r["IFACE"]): number(r, "RX_OK") for r in desk.recent("show interfaces counters")}
    cables = {cable.name: cable for port in gone if (cable := desk.cable(port)) is not None}
    switches = {port.partition(":")[0] for port in gone}
    if len(cables) > 1 and len(switches) == 1:
        return [_silent_switch(desk, next(iter(gone)), why)]
    found = []
    for cable in cables.values():  # a dead direction lets nothing pass, a switch all but some flows
        ends = [f"{e.node}:{e.port}" for e in (cable.a, cable.b)]
        out = [port for port in ends if port in gone]
        into = [came.get(desk.peer(port), 0.0) for port in out]
        if stands and len(out) == 1 and into == [0.0] and not _lets_pass(desk, desk.peer(out[0])):
            kind = "one_way"
        elif stands and len(out) == 1:
            return [_silent_switch(desk, out[0], why)]
        else:
            kind = "loss"
        found.append(Finding(kind, f"cable:{cable.name}", why, new_cable(desk, cable)))
    return found


def _lets_pass(desk: Desk, port: str) -> bool:
    """Whether anything comes to a port to which no flow of the job does: a mesh of probes has flows of all sorts."""
    began = desk.time_ns
    if not desk.do("probe mesh"):
        return False
    rows = desk.recent("show interfaces counters", of_ns=desk.time_ns - began)
    return any(number(row, "RX_OK") > 0 for row in rows if row["IFACE"] == port)


def _silent_switch(desk: Desk, port: str, why: str) -> Finding:
    """That of the port, or beside it if that is a NIC's."""
    node = port.partition(":")[0]
    switch = node if desk.rank(node) is None else desk.peer(port).partition(":")[0]
    return Finding("drop_hash", f"switch:{switch}", why, (f"route drain {switch}",))


RULES = (damaged,)
LATER = (vanished,)
