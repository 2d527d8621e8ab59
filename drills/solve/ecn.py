"""Marks that are not made, or do not arrive; classes that begin at a cable."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from drills.solve.desk import Desk, Row, number
from drills.solve.finding import Finding
from drills.solve.mending import new_cable
from drills.solve.settings import numbers

MARKS = 8
RATIO = 8.0
FEW = 0.05  # of them are on their way, or had been sent before
FRAMES = 20
LEFT = 0.1


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
    now = _classes(desk.recent("show queue counters"))
    begun: dict[str, list[str]] = {}
    for port in _begins(desk):
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


def mapped(desk: Desk) -> list[Finding]:
    """What comes to a switch in the class of the data leaves it in class 0, whatever its settings are said to be."""
    sent: dict[str, dict[str, float]] = {}
    for row in desk.recent("show queue counters"):
        its = sent.setdefault(str(row["Port"]).partition(":")[0], {})
        its[str(row["TxQ"])] = its.get(str(row["TxQ"]), 0.0) + number(row, "Counter/pkts")
    begun = Counter(port.partition(":")[0] for port in _begins(desk))  # at one port it may be the cable
    found = []
    for switch, its in sent.items():
        if begun[switch] > 1 and its.get("UC0", 0.0) > FRAMES and its.get("UC3", 0.0) <= LEFT * its["UC0"]:
            why = f"{switch} has sent {its['UC0']:g} in class 0 of late, and {its.get('UC3', 0.0):g} in class 3"
            found.append(Finding("wrong_dscp_map", f"switch:{switch}", why, _map(desk, switch)))
    return found


def _map(desk: Desk, switch: str) -> tuple[str, ...]:
    """Writes once more which DSCP are of class 3."""
    rows = desk.rows("show qos config", "dscp")
    its = [str(row["DSCP"]) for row in rows if row["Switch"] == switch and str(row["TC"]) == "3"]
    return tuple(f"qos dscp {switch} {dscp} 3" for codes in its for dscp in numbers(codes))


def _begins(desk: Desk) -> list[str]:
    """Ports where frames come in that are in class 0, and were not when they were sent."""
    sent = _classes(desk.rows("show queue counters"))
    found = []
    for row in desk.rows("show priority-group watermark"):
        port = str(row["Port"])
        peer = desk.peer(port)
        nic = desk.rank(peer.partition(":")[0]) is not None  # these send in classes of their own
        if number(row, "PG0") > 0 and (nic or peer in sent and "UC0" not in sent[peer]):
            found.append(port)
    return found


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


OWN = (remarked, mapped)
LATER = (bleached, late)
