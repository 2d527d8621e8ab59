"""Spraying and credit: paths that lose all, NICs that keep order, credit that is promised and not given."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from statistics import median

from drills.solve.diagnosis import Diagnosis
from drills.solve.operator import Operator, Row, by_peer, number

AGAIN = 2
"""Losses of one entropy beyond those of the others: it is not by chance."""
REFUSED = 10
WAITS_US = 50.0


def sprays(op: Operator) -> bool:
    """Whether packets of a queue pair take several paths by themselves, so that some are overtaken."""
    return bool(op.rows("show paths 0"))


def lanes(op: Operator) -> Iterator[Diagnosis]:
    """Some entropies of queue pairs lose, the others do not: at the leaf within which they do."""
    if not sprays(op):
        return
    struck = {(rank, by_peer(row)) for rank in range(op.plan.ranks) for row in _dead(op.rows(f"show paths {rank}"))}
    within: dict[str, int] = defaultdict(int)
    for a, b in struck:
        within[op.switch_of(a)] += op.switch_of(a) == op.switch_of(b)
    if len(struck) > 1 and max(within.values(), default=0):
        yield Diagnosis("blackhole_entropy", f"switch:{max(within, key=lambda switch: within[switch])}")


def _dead(rows: object) -> Iterator[Row]:
    of: dict[int, list[Row]] = defaultdict(list)
    for row in rows if isinstance(rows, list) else ():
        of[int(row["qp"])].append(row)
    for entropies in of.values():
        usual = median(number(row, "lost") for row in entropies)
        yield from (row for row in entropies if number(row, "lost") >= usual + AGAIN)


def in_order(op: Operator) -> Iterator[Diagnosis]:
    """What comes early is placed at once, but at one NIC."""
    refused = {
        str(row["NIC"]): number(row, "out_of_sequence") - number(row, "placed")
        for row in op.recent("show reorder", "received")
        if number(row, "out_of_sequence")
    }
    most = max(refused, key=lambda nic: refused[nic], default="")
    if len(refused) > 1 and refused[most] > REFUSED + max(n for nic, n in refused.items() if nic != most):
        yield Diagnosis("in_order_nic", f"nic:{op.rank(most.partition(' ')[0])}")


def credit(op: Operator) -> Iterator[Diagnosis]:
    """Senders wait for one receiver, and ask it."""
    asked: dict[int, float] = defaultdict(float)
    for rank in range(op.plan.ranks):
        for row in op.rows(f"show credits {rank}", "sends"):
            if number(row, "asked") or number(row, "waits_us") > WAITS_US:
                asked[by_peer(row)] += 1
    most = max(asked, key=lambda rank: asked[rank], default=-1)
    if asked and asked[most] > 1 and asked[most] > 2 * max([n for rank, n in asked.items() if rank != most], default=0):
        yield Diagnosis("grant_leak", f"nic:{most}")


RULES = (lanes, in_order, credit)
