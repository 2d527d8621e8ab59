"""Marks that are not made, or do not arrive; classes that begin at a cable."""

from __future__ import annotations

from testbed.drill.solve.desk import Desk, number
from testbed.drill.solve.finding import Finding
from testbed.drill.solve.mending import new_cable

MARKS = 8
RATIO = 8.0
FEW = 0.05  # of them are on their way, or had been sent before


def _marks(desk: Desk) -> dict[str, float]:
    found: dict[str, float] = {}
    for row in desk.recent("show ecn", "queues"):
        found[str(row["Port"])] = found.get(str(row["Port"]), 0.0) + number(row, "EcnMarked/pkts")
    return found


def bleached(desk: Desk) -> list[Finding]:
    """All NICs at a switch see marks, and one sees none."""
    seen = {int(row["rank"]): number(row, "np_ecn_marked_roce_packets") for row in desk.recent("show nics")}
    beside: dict[str, list[int]] = {}
    for nic in desk.plan.nics:
        beside.setdefault(desk.switch_end(desk.nic_cable(nic.rank)).partition(":")[0], []).append(nic.rank)
    found = []
    for ranks in beside.values():
        usual = sorted(seen.get(rank, 0.0) for rank in ranks)[len(ranks) // 2]
        for rank in ranks:
            if usual > MARKS and seen.get(rank, 0.0) <= FEW * usual:
                cable = desk.nic_cable(rank)
                why = f"NIC {rank} has seen {seen.get(rank, 0.0):g} marks, others at its switch {usual:g}"
                found.append(Finding("ecn_bleached", f"cable:{cable.name}", why, new_cable(desk, cable)))
    return found


def remarked(desk: Desk) -> list[Finding]:
    """Frames go into a cable in class 3 and leave the switch behind it in class 0, both ways."""
    sent: dict[str, dict[str, float]] = {}
    for row in desk.recent("show queue counters"):
        sent.setdefault(str(row["Port"]), {})[str(row["TxQ"])] = number(row, "Counter/pkts")
    best_effort = {port.partition(":")[0] for port, its in sent.items() if its.get("UC0", 0) > 0}
    found = []
    for cable in desk.plan.cables:
        ends = [f"{end.node}:{end.port}" for end in (cable.a, cable.b)]
        clean = all(sent.get(p, {}).get("UC0", 0) == 0 and sent.get(p, {}).get("UC3", 0) > 0 for p in ends)
        if clean and {cable.a.node, cable.b.node} <= best_effort:
            why = f"class 0 begins behind {cable.name}"
            found.append(Finding("dscp_remarked", f"cable:{cable.name}", why, new_cable(desk, cable)))
    return found


def late(desk: Desk) -> list[Finding]:
    """One switch pauses where its like marks."""
    per: dict[str, float] = {switch.name: 0.0 for switch in desk.plan.switches}
    for port, n in _marks(desk).items():
        per[port.partition(":")[0]] = per.get(port.partition(":")[0], 0.0) + n
    found = []
    for switch, n in per.items():
        like = [m for other, m in per.items() if other != switch and other[:2] == switch[:2]]
        deep = _deep(desk, switch)
        if like and max(like) > MARKS and n * RATIO < max(like) and deep:
            usual = next((r for r in desk.rows("show ecn config") if r["Switch"] == switch), {})
            why = f"{switch} has marked {n:g}, its like {max(like):g}, and its queues are deep: {deep:g} bytes"
            low, high = usual.get("green_min_threshold", 0), usual.get("green_max_threshold", 0)
            share = int(usual.get("green_drop_probability", 100)) / 100
            line = f"ecn {switch} --kmin {low}B --kmax {high}B --pmax {share:g}"
            found.append(Finding("ecn_thresholds", f"switch:{switch}", why, (line,)))
    return found


def _deep(desk: Desk, switch: str) -> float:
    """The deepest queue of a switch, if it is deeper than where ECN is meant to begin."""
    rows = [row for row in desk.rows("show queue watermark") if str(row["Port"]).startswith(f"{switch}:")]
    most = max((number(row, "UC3") for row in rows), default=0.0)
    begins = max((number(row, "green_min_threshold") for row in desk.rows("show ecn config")), default=0.0)
    return most if begins and most > 2 * begins else 0.0


LATER = (bleached, remarked, late)
