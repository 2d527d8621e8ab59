"""Pauses: who sends them without need, who does not heed them, whose buffer is too small."""

from __future__ import annotations

from drills.solve.desk import Desk, number
from drills.solve.finding import Finding

MORE = 3.0
FEW = 20
FEWEST = 3


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
    peer, rank = desk.peer(port), desk.rank(desk.peer(port).partition(":")[0])
    deaf = _sent(desk).get(port, 0.0) > 0  # else nobody has told it to be still
    place = f"port:{port}" if not deaf else f"port:{peer}" if rank is None else f"nic:{rank}"
    mend = (f"pfc {port} on", f"pfc {peer} on" if rank is None else f"nic pfc {rank} on")
    how = "in spite of its pauses" if deaf else "and it sends no pauses"
    return [Finding("pfc_off", place, f"{over[port]:g} frames too many at {port}, {how}", mend)]


def overflowing(desk: Desk) -> list[Finding]:
    """A switch drops at most of its ports, for its shared buffer is full, and its like do not."""
    full: dict[str, set[int]] = {}
    for row in desk.recent("show drops", of_ns=1_200_000.0):
        if row["reason"] == "tail":
            full.setdefault(str(row["node"]), set()).add(int(row["port"]))
    found = []
    for switch, ports in full.items():
        like = [len(full.get(s.name, ())) for s in desk.plan.switches if s.name != switch and s.name[:2] == switch[:2]]
        cables = [cable for cable in desk.plan.cables if switch in (cable.a.node, cable.b.node)]
        if like and 2 * len(ports) > len(cables) and not max(like):
            found.append(_small(desk, switch, f"{switch} has no room left at {len(ports)} ports, its like have"))
    return found


def _small(desk: Desk, switch: str, why: str) -> Finding:
    size = next((row["size"] for row in desk.rows("show buffer config", "pools") if row["Switch"] == switch), 0)
    return Finding("small_buffer", f"switch:{switch}", why, (f"buffer {switch} {size}B",))


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
            found.append(_small(desk, switch, f"{switch} has sent {n:g} pauses, its like {max(like):g}"))
    return found


def held_back(desk: Desk) -> list[Finding]:
    """The job is slow, and all NICs are told to be still now and then but one: it has never so much to send."""
    if not desk.slow or desk.stands:
        return []
    rows = {int(row["rank"]): row for row in desk.recent("show nics")}
    told = {nic.rank: number(rows.get(nic.rank, {}), "rx_prio3_pause") for nic in desk.plan.nics}
    never = [rank for rank, n in told.items() if not n]
    if len(never) != 1 or len(told) <= FEWEST or number(rows.get(never[0], {}), "tx_prio3_pause"):
        return []
    why = f"all NICs but {never[0]} are paused by their switches"
    return [Finding("slow_pcie", f"nic:{never[0]}", why, (f"nic pcie retrain {never[0]}",))]


LATER = (storm, unheeded, overflowing)
BEHIND = (held_back,)
LAST = (shallow,)
