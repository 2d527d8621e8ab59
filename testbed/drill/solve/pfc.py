"""Pauses: who sends them without need, who does not heed them, whose buffer is too small."""

from __future__ import annotations

from testbed.drill.solve.desk import Desk, number
from testbed.drill.solve.finding import Finding

MORE = 3.0
FEW = 20


def _sent(desk: Desk) -> dict[str, float]:
    """XOFFs by port, of all lossless classes."""
    rows = desk.recent("show pfc", "tx")
    return {str(row["Port Tx"]): number(row, "PFC3") + number(row, "PFC4") for row in rows}


def storm(desk: Desk) -> list[Finding]:
    """The job stands, and a NIC pauses its switch."""
    if not desk.stands:
        return []
    sent = {port: n for port, n in _sent(desk).items() if n and desk.rank(port.partition(":")[0]) is not None}
    if not sent:
        return []
    port = max(sent, key=lambda p: sent[p])
    rank = desk.rank(port.partition(":")[0])
    why = f"{port} has sent {sent[port]:g} pauses, and is paused by nobody"
    return [Finding("pause_storm", f"nic:{rank}", why, (f"pfc {desk.peer(port)} off",))]


def unheeded(desk: Desk) -> list[Finding]:
    """Headroom runs over at one port, although it has what all have."""
    over: dict[str, float] = {}
    for row in desk.recent("show drops", of_ns=1_200_000.0):
        if row["reason"] == "headroom":
            port = f"{row['node']}:{row['port']}"
            over[port] = over.get(port, 0.0) + number(row, "count")
    if not over:
        return []
    port = max(over, key=lambda p: over[p])
    rank = desk.rank(desk.peer(port).partition(":")[0])
    place = f"port:{desk.peer(port)}" if rank is None else f"nic:{rank}"
    mend = (f"pfc {desk.peer(port)} on",) if rank is None else (f"nic pfc {rank} on",)
    return [Finding("pfc_off", place, f"{over[port]:g} frames too many at {port}, in spite of its pauses", mend)]


def shallow(desk: Desk) -> list[Finding]:
    """One switch pauses far more than another of its kind, and its queues are no deeper."""
    if not desk.slow:
        return []
    sent: dict[str, float] = {switch.name: 0.0 for switch in desk.plan.switches}
    for port, n in _sent(desk).items():
        node = port.partition(":")[0]
        if node in sent:
            sent[node] += n
    found = []
    for switch, n in sent.items():
        like = [m for other, m in sent.items() if other != switch and other[:2] == switch[:2]]
        if like and n > FEW and n > MORE * max(like):
            size = next((row["size"] for row in desk.rows("show buffer config", "pools") if row["Switch"] == switch), 0)
            why = f"{switch} has sent {n:g} pauses, its like {max(like):g}"
            found.append(Finding("small_buffer", f"switch:{switch}", why, (f"buffer {switch} {size}B",)))
    return found


LATER = (storm, unheeded)
LAST = (shallow,)
