"""ECN marks that are not made, or do not arrive; frames whose class changes at a cable."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from statistics import median_high

from drills.solve.diagnosis import Diagnosis, distinct
from drills.solve.mending import new_cable
from drills.solve.operator import Operator, Row, by_port, by_rank, node_of, number, sums
from drills.solve.settings import numbers

MARKS = 8
RATIO = 8.0
FEW = 0.05  # of the marks: in flight, or of frames sent before
FRAMES = 20
LEFT = 0.1
FCS = 4


def bleached(op: Operator) -> Iterator[Diagnosis]:
    """All NICs at a switch see marks, and one sees none."""
    seen = sums(op.recent("show nics"), by_rank, "np_ecn_marked_roce_packets")
    at: dict[str, list[int]] = defaultdict(list)
    for nic in op.plan.nics:
        at[op.switch_of(nic.rank)].append(nic.rank)
    for ranks in at.values():
        usual = median_high(seen.get(rank, 0.0) for rank in ranks)
        for rank in ranks:
            if usual > MARKS and seen.get(rank, 0.0) <= FEW * usual:
                cable = op.nic_cable(rank)
                yield Diagnosis("ecn_bleached", f"cable:{cable.name}", new_cable(op, cable))


@distinct
def remarked(op: Operator) -> Iterator[Diagnosis]:
    """Frames go into a cable in another class, and come out of it in class 0: the cable changes it, no switch."""
    now = _classes(op.recent("show queue counters"))
    begun: dict[str, list[str]] = defaultdict(list)
    for port in _class_0_begins(op):
        begun[node_of(port)].append(port)
    for switch, ports in begun.items():
        cable = op.cable(ports[0])
        if len(ports) > 1 or cable is None or not op.between_switches(cable) or _are_headers(op, switch):
            continue
        sends = any("UC3" in classes for port, classes in now.items() if node_of(port) == switch)
        if not sends and _has_other_data(op, switch, ports[0], now):
            continue  # the switch sends all in class 0: it is the cause
        yield Diagnosis("dscp_remarked", f"cable:{cable.name}", new_cable(op, cable))


def headers(op: Operator) -> Iterator[Diagnosis]:
    """Of a cable what switches have trimmed comes in class 0: it has lost its DSCP there."""
    begun: dict[str, list[str]] = defaultdict(list)
    for port in _class_0_begins(op):
        begun[node_of(port)].append(port)
    for switch, ports in begun.items():
        cable = op.cable(ports[0])
        if len(ports) == 1 and cable is not None and op.between_switches(cable) and _are_headers(op, switch):
            yield Diagnosis("trim_dscp_lost", f"cable:{cable.name}", new_cable(op, cable))


def _are_headers(op: Operator, switch: str) -> bool:
    """Whether what a switch sends in class 0 is no longer than what trimming leaves."""
    size = max((number(row, "size") for row in op.rows("show switch-trimming global")), default=0.0)
    sent = [row for row in op.rows("show queue counters") if (node_of(by_port(row)), row["TxQ"]) == (switch, "UC0")]
    packets, nbytes = (sum(number(row, f"Counter/{what}") for row in sent) for what in ("pkts", "bytes"))
    return 0 < nbytes <= packets * (size + FCS)


def mapped(op: Operator) -> Iterator[Diagnosis]:
    """Data come to a switch in their class and leave it in class 0, whatever its settings show."""
    queues = op.recent("show queue counters")
    sent = sums(queues, lambda row: (node_of(by_port(row)), str(row["TxQ"])), "Counter/pkts")
    begun = Counter(node_of(port) for port in _class_0_begins(op))  # at one port it may be the cable
    for switch in dict.fromkeys(switch for switch, _ in sent):
        class_0, class_3 = sent.get((switch, "UC0"), 0.0), sent.get((switch, "UC3"), 0.0)
        if begun[switch] > 1 and class_0 > FRAMES and class_3 <= LEFT * class_0:
            yield Diagnosis("wrong_dscp_map", f"switch:{switch}", _map(op, switch))


def _map(op: Operator, switch: str) -> tuple[str, ...]:
    """Writes the DSCPs of class 3 anew."""
    rows = op.rows("show qos config", "dscp")
    ranges = [str(row["DSCP"]) for row in rows if row["Switch"] == switch and str(row["TC"]) == "3"]
    return tuple(f"qos dscp {switch} {dscp} 3" for codes in ranges for dscp in numbers(codes))


def _class_0_begins(op: Operator) -> Iterator[str]:
    """Ports where frames come in in class 0 that were sent in another."""
    sent = _classes(op.rows("show queue counters"))
    for row in op.rows("show priority-group watermark"):
        peer = op.peer(by_port(row))
        nic = op.rank(peer) is not None  # NICs send in classes of their own
        if number(row, "PG0") > 0 and (nic or peer in sent and "UC0" not in sent[peer]):
            yield by_port(row)


def _classes(rows: Iterable[Row]) -> dict[str, set[str]]:
    """In which classes each port has sent."""
    classes: dict[str, set[str]] = defaultdict(set)
    for row in rows:
        if number(row, "Counter/pkts") > 0:
            classes[by_port(row)].add(str(row["TxQ"]))
    return classes


def _has_other_data(op: Operator, switch: str, port: str, now: Mapping[str, set[str]]) -> bool:
    """Whether other ports bring it data, too."""
    ends = [end for cable in op.plan.cables for end in (cable.a, cable.b) if end.node == switch]
    names = {f"{end.node}:{end.port}" for end in ends} - {port}
    return any("UC3" in now.get(op.peer(name), ()) for name in names)


def late(op: Operator) -> Iterator[Diagnosis]:
    """One switch pauses where its like marks.

    Watermarks are of all time. After a mending the deepest queue may be long ago, so marks are of all time then, too.
    """
    queues = op.rows("show ecn", "queues") if op.from_ns > 0 else op.recent("show ecn", "queues")
    marks = sums(queues, lambda row: node_of(by_port(row)), "EcnMarked/pkts")
    for switch in (switch.name for switch in op.plan.switches):
        n, like = marks.get(switch, 0.0), [marks.get(other, 0.0) for other in op.like(switch)]
        deep = _deep(op, switch)
        if like and max(like) > MARKS and n * RATIO < max(like) and deep:
            usual = next((r for r in op.rows("show ecn config") if r["Switch"] == switch), {})
            low, high = usual.get("green_min_threshold", 0), usual.get("green_max_threshold", 0)
            share = int(usual.get("green_drop_probability", 100)) / 100
            line = f"ecn {switch} --kmin {low}B --kmax {high}B --pmax {share:g}"
            yield Diagnosis("ecn_thresholds", f"switch:{switch}", (line,))


def _deep(op: Operator, switch: str) -> float:
    """The deepest queue of a switch, if it is far deeper than ECN's threshold."""
    rows = [row for row in op.rows("show queue watermark") if str(row["Port"]).startswith(f"{switch}:")]
    most = max((number(row, "UC3") for row in rows), default=0.0)
    begins = max((number(row, "green_min_threshold") for row in op.rows("show ecn config")), default=0.0)
    return most if begins and most > 2 * begins else 0.0


OWN = (remarked, headers, mapped)
LATER = (bleached, late)
