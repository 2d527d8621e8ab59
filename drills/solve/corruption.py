"""Frames that arrive corrupt, twice, or out of order."""

from __future__ import annotations

import re
from collections import defaultdict

from drills.solve.diagnosis import Diagnosis
from drills.solve.lost import missing, under_way
from drills.solve.operator import Operator, by_peer, by_rank, number, sums
from drills.solve.paths import sprays
from drills.solve.trials import change_cables, drain_switches, used

_PAIR = re.compile(r"(\d+\.\d+\.\d+\.\d+) > (\d+\.\d+\.\d+\.\d+)")
LOOKS = 8
LOOK_NS = 25_000.0
WINDOW_NS = 400_000.0


def checksums(op: Operator) -> list[Diagnosis]:
    """ICRC errors at NICs: the cable that all pairs with corrupt packets share."""
    pairs = _corrupt(op)
    if not pairs:
        return []
    for _ in range(LOOKS):
        if len({dst for _, dst in pairs}) > 2:
            break
        op.pass_(LOOK_NS)
        pairs |= _corrupt(op)
    shared = set.intersection(*[set(pair) for pair in pairs])
    ranks = sorted({dst for _, dst in pairs} & shared or shared)
    cable = None  # the path of a single flow has cables between switches, too
    if not ranks or len(pairs) == 1 and len({op.switch_of(rank) for rank in next(iter(pairs))}) > 1:
        cable = change_cables(op, used(op), _icrc, WINDOW_NS)
    if cable is None and ranks:
        cable = op.nic_cable(ranks[0])
    return [Diagnosis("corruption", f"cable:{cable.name}")] if cable else []


def _corrupt(op: Operator) -> set[tuple[int, int]]:
    """Pairs of ranks: by the headers of dropped packets, else by who retransmits to those who drop."""
    pairs = set()
    drops = [row for row in op.recent("show drops") if row["reason"] == "icrc"]
    for row in drops:
        if match := _PAIR.match(str(row.get("headers", ""))):
            source, destination = map(op.rank_of_ip, match.groups())
            if source is not None and destination is not None:
                pairs.add((source, destination))
    at = {op.rank(str(row["node"])) for row in drops} if not pairs else set()
    for row in op.recent("show qps") if at else ():
        if by_peer(row) in at and number(row, "retransmitted") > 0:
            pairs.add((by_rank(row), by_peer(row)))
    return pairs


def _icrc(op: Operator, ns: float) -> bool:
    return any(number(row, "rx_icrc_encapsulated") > 0 for row in op.recent("show nics", of_ns=ns))


def twice(op: Operator) -> list[Diagnosis]:
    """More comes in than was ever sent, and NICs count duplicates. Recent counts alone may be of frames in flight."""
    if not any(number(row, "duplicate_request") > 0 for row in op.recent("show nics")):
        return []
    extra: dict[str, float] = defaultdict(float)
    ever, in_flight = missing(op, 0, dropped=False), under_way(op)
    for port, n in missing(op, dropped=False).items():
        cable = op.cable(port)
        if n <= -in_flight[port] and ever[port] < 0 and cable is not None:
            extra[cable.name] -= n
    if not extra:
        return []
    worst = max(extra, key=lambda name: extra[name])
    return [Diagnosis("duplication", f"cable:{worst}")]


def overtaking(op: Operator) -> list[Diagnosis]:
    """Gaps, and nothing is missing."""
    if sprays(op) or not _gaps(op, WINDOW_NS):
        return []
    cable = change_cables(op, used(op), _gaps, WINDOW_NS)
    return [Diagnosis("reordering", f"cable:{cable.name}")] if cable else []


def _gaps(op: Operator, ns: float) -> bool:
    return any(number(row, "out_of_sequence") > 0 for row in op.recent("show nics", of_ns=ns))


def results(op: Operator) -> list[Diagnosis]:
    """Wrong results, and no counter of them: a switch without which they are right, else the rank with most of them."""
    if not _wrong(op):
        return []
    wrong = sums(op.rows("show job --ranks --last 12"), by_rank, "wrong")
    to_nics = {end.node for c in op.plan.cables if not op.between_switches(c) for end in (c.a, c.b)}
    inner = [switch.name for switch in op.plan.switches if switch.name not in to_nics]
    switch = drain_switches(op, inner, _wrong, 4000.0 * op.best_us + 100_000)
    if switch:
        op.do(f"config route undrain {switch}")  # what else is wrong may be on the other path
        return [Diagnosis("silent_corruption", f"switch:{switch}", (f"route drain {switch}",))]
    worst = max(wrong, key=lambda rank: wrong[rank], default=None)
    if worst is None:
        return []
    return [Diagnosis("silent_corruption", f"nic:{worst}")]


def _wrong(op: Operator, _: float = 0.0) -> bool:
    return any(number(row, "wrong") > 0 for row in op.rows("show job --last 2"))


OWN = (checksums, twice, results)
"""Their symptoms are of no other class."""
LATER = (overtaking,)
