"""Marks that are not made, or do not arrive; classes that begin at a cable."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from testbed.drill.solve.desk import Desk, Row, number
from testbed.drill.solve.finding import Finding
from testbed.drill.solve.mending import new_cable

MARKS = 8
RATIO = 8.0
FEW = 0.05  # of them are on their way, or had been sent before


def _marks(desk: Desk, *, ever: bool) -> dict[str, float]:
    found: dict[str, float] = {}
    for row in desk.rows("show ecn", "queues") if ever else desk.recent("show ecn", "queues"):
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
    """Frames go into a cable in another class, and come out of it in class 0: it begins there, not at a switch."""
    sent = _classes(desk.rows("show queue counters"))
    now = _classes(desk.recent("show queue counters"))
    begun: dict[str, list[str]] = {}
    for row in desk.rows("show priority-group watermark"):
        port = str(row["Port"])
        peer = desk.peer(port)
        nic = desk.rank(peer.partition(":")[0]) is not None  # these send in classes of their own
        if number(row, "PG0") > 0 and (nic or peer in sent and "UC0" not in sent[peer]):
            begun.setdefault(port.partition(":")[0], []).append(port)
    found: dict[str, Finding] = {}
    for switch, ports in begun.items():
        cable = desk.cable(ports[0])
        others = any("UC3" in its for port, its in now.items() if port.partition(":")[0] == switch)
        if (
            len(ports) > 1
            or cable is None
            or not desk.between_switches(cable)
            or not others
            and _takes_all(desk, switch, ports[0], now)
        ):
            continue  # all that comes in is in class 0: it is the switch
        why = f"class 0 begins behind {cable.name}, at {ports[0]}"
        found[cable.name] = Finding("dscp_remarked", f"cable:{cable.name}", why, new_cable(desk, cable))
    return list(found.values())


def _classes(rows: Iterable[Row]) -> dict[str, set[str]]:
    """In which classes each port has sent."""
    found: dict[str, set[str]] = {}
    for row in rows:
        if number(row, "Counter/pkts") > 0:
            found.setdefault(str(row["Port"]), set()).add(str(row["TxQ"]))
    return found


def _takes_all(desk: Desk, switch: str, port: str, now: Mapping[str, set[str]]) -> bool:
    """Whether other ports bring it data, too."""
    ends = [end for cable in desk.plan.cables for end in (cable.a, cable.b) if end.node == switch]
    names = {f"{end.node}:{end.port}" for end in ends} - {port}
    return any("UC3" in now.get(desk.peer(name), ()) for name in names)


def late(desk: Desk) -> list[Finding]:
    """One switch pauses where its like marks.

    How deep a queue was is told of all time. When something has been mended it may be long ago, so marks are, too.
    """
    per: dict[str, float] = {switch.name: 0.0 for switch in desk.plan.switches}
    for port, n in _marks(desk, ever=desk.from_ns > 0).items():
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


OWN = (remarked,)
LATER = (bleached, late)
