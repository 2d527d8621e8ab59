"""Lost frames: those that a port has counted, and those that nobody has."""

from __future__ import annotations

from itertools import pairwise

from testbed.drill.solve.desk import Desk, Row, number
from testbed.drill.solve.finding import Finding
from testbed.drill.solve.mending import new_cable
from topologies.graph.fabric import End

UNDER_WAY = 12
"""Frames that may be on a cable, or in a port, when counters of both ends are read."""
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


def missing(desk: Desk, *, dropped: bool = True) -> dict[str, float]:
    """By port: frames that it has sent and its peer has neither received nor counted. Below zero: too many.

    A port that has counted nothing of late has no row. `dropped`: what the peer has dropped for want of room counts
    beside what it has received; some of it is in both.
    """
    rows = {str(r["IFACE"]): r for r in desk.recent("show interfaces counters")}
    nics = {desk.plan.nics[int(r["rank"])].name: r for r in desk.recent("show nics")}
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


def vanished(desk: Desk) -> list[Finding]:
    """TX here, no RX there, and no counter of it."""
    again = ("local_ack_timeout_err", "packet_seq_err")
    if not any(number(row, key) > 0 for row in desk.recent("show nics") for key in again):
        return []  # nobody misses anything: frames are under way
    stands = desk.stands
    gone = missing(desk)
    most = max([*gone.values(), 0.0])
    gone = {port: n for port, n in gone.items() if n >= max(1 if stands else UNDER_WAY, 0.2 * most)}
    if not gone:
        return []
    why = ", ".join(f"{port} sent {n:g} that never came" for port, n in gone.items())
    came = {str(r["IFACE"]): number(r, "RX_OK") for r in desk.recent("show interfaces counters")}
    cables = {cable.name: cable for port in gone if (cable := desk.cable(port)) is not None}
    switches = {port.partition(":")[0] for port in gone}
    if len(cables) > 1 and len(switches) == 1:
        return [_silent_switch(desk, next(iter(gone)), why)]
    found = []
    for cable in cables.values():
        ends = [f"{e.node}:{e.port}" for e in (cable.a, cable.b)]
        out = [port for port in ends if port in gone]
        into = [came.get(desk.peer(port), 0.0) for port in out]
        if stands and len(out) == 1 and into == [0.0]:
            kind = "one_way"
        elif stands and len(out) == 1:
            return [_silent_switch(desk, out[0], why)]
        else:
            kind = "loss"
        found.append(Finding(kind, f"cable:{cable.name}", why, new_cable(desk, cable)))
    return found


def _silent_switch(desk: Desk, port: str, why: str) -> Finding:
    """That of the port, or beside it if that is a NIC's."""
    node = port.partition(":")[0]
    switch = node if desk.rank(node) is None else desk.peer(port).partition(":")[0]
    return Finding("drop_hash", f"switch:{switch}", why, (f"route drain {switch}",))


RULES = (damaged,)
LATER = (vanished,)
