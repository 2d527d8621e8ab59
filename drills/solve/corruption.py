"""Frames that come spoilt, twice, or in another order."""

from __future__ import annotations

import re

from drills.solve.desk import Desk, number
from drills.solve.finding import Finding
from drills.solve.lost import missing, under_way
from drills.solve.trials import change_cables, drain_switches, used

_PAIR = re.compile(r"(\d+\.\d+\.\d+\.\d+) > (\d+\.\d+\.\d+\.\d+)")
LOOKS = 8
LOOK_NS = 25_000.0
WINDOW_NS = 400_000.0


def checksums(desk: Desk) -> list[Finding]:
    """ICRC errors at NICs: which way have the spoilt packets in common?"""
    pairs = _spoilt(desk)
    if not pairs:
        return []
    for _ in range(LOOKS):
        if len({dst for _, dst in pairs}) > 2:
            break
        desk.pass_(LOOK_NS)
        pairs |= _spoilt(desk)
    why = f"spoilt on the way: {sorted(pairs)}"
    shared = set.intersection(*[set(pair) for pair in pairs])
    ranks = sorted({dst for _, dst in pairs} & shared or shared)
    cable = None  # of one flow, its way has cables between switches, too
    if not ranks or len(pairs) == 1 and len({_switch(desk, rank) for rank in next(iter(pairs))}) > 1:
        cable = change_cables(desk, used(desk), _icrc, WINDOW_NS)
    if cable is None and ranks:
        cable = desk.nic_cable(ranks[0])
    return [Finding("corruption", f"cable:{cable.name}", why)] if cable else []


def _spoilt(desk: Desk) -> set[tuple[int, int]]:
    """From whom, to whom: by the headers of what was dropped, else by who has sent again to those who drop."""
    found = set()
    drops = [row for row in desk.recent("show drops") if row["reason"] == "icrc"]
    for row in drops:
        told = _PAIR.match(str(row.get("headers", "")))
        ends = [desk.rank_of_ip(ip) for ip in told.groups()] if told else [None]
        if None not in ends:
            found.add((int(ends[0] or 0), int(ends[1] or 0)))
    at = {desk.rank(str(row["node"])) for row in drops} if not found else set()
    for row in desk.recent("show qps") if at else ():
        if int(row["peer"]) in at and number(row, "retransmitted") > 0:
            found.add((int(row["rank"]), int(row["peer"])))
    return found


def _switch(desk: Desk, rank: int) -> str:
    return desk.switch_end(desk.nic_cable(rank)).partition(":")[0]


def _icrc(desk: Desk, ns: float) -> bool:
    return any(number(row, "rx_icrc_encapsulated") > 0 for row in desk.recent("show nics", of_ns=ns))


def twice(desk: Desk) -> list[Finding]:
    """More comes in than was ever sent, and NICs have seen it before. Of late alone it may have been under way."""
    if not any(number(row, "duplicate_request") > 0 for row in desk.recent("show nics")):
        return []
    grown: dict[str, float] = {}
    ever, held = missing(desk, 0, dropped=False), under_way(desk)
    for port, n in missing(desk, dropped=False).items():
        cable = desk.cable(port)
        if n <= -held[port] and ever[port] < 0 and cable is not None:
            grown[cable.name] = grown.get(cable.name, 0.0) - n
    if not grown:
        return []
    worst = max(grown, key=lambda name: grown[name])
    return [Finding("duplication", f"cable:{worst}", f"{grown[worst]:g} frames more came than were sent")]


def overtaking(desk: Desk) -> list[Finding]:
    """Gaps, and nothing is missing."""
    if not _gaps(desk, WINDOW_NS):
        return []
    cable = change_cables(desk, used(desk), _gaps, WINDOW_NS)
    why = "gaps in the order of packets, and no frame is missing anywhere"
    return [Finding("reordering", f"cable:{cable.name}", why)] if cable else []


def _gaps(desk: Desk, ns: float) -> bool:
    return any(number(row, "out_of_sequence") > 0 for row in desk.recent("show nics", of_ns=ns))


def sums(desk: Desk) -> list[Finding]:
    """Wrong results, and no counter of it: is it a switch that one can do without? Else it is where most are wrong."""
    if not _wrong(desk, 2):
        return []
    wrong: dict[int, float] = {}
    for row in desk.rows("show job --ranks --last 12"):
        wrong[int(row["rank"])] = wrong.get(int(row["rank"]), 0.0) + number(row, "wrong")
    to_nics = {end.node for c in desk.plan.cables if not desk.between_switches(c) for end in (c.a, c.b)}
    inner = [switch.name for switch in desk.plan.switches if switch.name not in to_nics]
    window = 4000.0 * desk.best_us + 100_000
    found = drain_switches(desk, inner, lambda d, _: _wrong(d, 2), window)
    if found:
        line = f"route drain {found}"
        desk.do(f"config route undrain {found}")  # what else is wrong may be on the other way
        return [Finding("silent_corruption", f"switch:{found}", f"without {found} sums are right", (line,))]
    worst = max(wrong, key=lambda rank: wrong[rank], default=None)
    if worst is None:
        return []
    return [Finding("silent_corruption", f"nic:{worst}", f"rank {worst} has the most wrong elements, {wrong[worst]:g}")]


def _wrong(desk: Desk, last: int) -> bool:
    return any(number(row, "wrong") > 0 for row in desk.rows(f"show job --last {last}"))


OWN = (checksums, twice, sums)
"""What they go by no other class does."""
LATER = (overtaking,)
