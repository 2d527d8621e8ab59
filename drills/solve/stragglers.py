"""Ranks that are slow, frozen, or killed."""

from __future__ import annotations

from collections import Counter, defaultdict
from statistics import median_high

from drills.solve.diagnosis import Diagnosis
from drills.solve.operator import Operator, by_rank, number, sums

LONGER = 1.3
SEEN = 40


def slow(op: Operator) -> list[Diagnosis]:
    """In slow steps one rank's own time is longer."""
    steps: dict[str, dict[int, float]] = defaultdict(dict)
    for row in op.rows(f"show job --ranks --last {SEEN}"):
        if not row.get("fallback"):
            steps[str(row["step"])][by_rank(row)] = number(row, "host_us") + number(row, "compute_us")
    slowest: Counter[int] = Counter()
    for busy in steps.values():
        middle = median_high(busy.values())
        most = max(busy, key=lambda rank: busy[rank])
        if busy[most] > LONGER * middle and busy[most] - middle > 0.05 * op.best_us:
            slowest[most] += 1
    return [Diagnosis("straggler", f"nic:{rank}") for rank, _ in slowest.most_common(1)]


def gone(op: Operator) -> list[Diagnosis]:
    """A worker that has ended, though its queue pairs had not failed."""
    failed: set[str] = set()
    for row in op.rows("show logging"):
        who, message = str(row["who"]), str(row["message"])
        if who.startswith("nic") and "in error" in message:
            failed.add(who[3:])
        if who.startswith("rank") and "ended" in message and who[4:] not in failed:
            return [Diagnosis("worker_killed", f"nic:{who[4:]}")]
    return []


def still(op: Operator) -> list[Diagnosis]:
    """Nothing is lost, nobody pauses, all wait but one; if all wait, it is who has sent least."""
    if not op.stands or any(number(row, "local_ack_timeout_err") > 0 for row in op.recent("show nics")):
        return []
    busy = [by_rank(row) for row in op.rows("show job --now") if row.get("state") == "at work"]
    if len(busy) == 1:
        return [Diagnosis("worker_frozen", f"nic:{busy[0]}")]
    sent = sums(op.rows("show qps"), by_rank, "tx_bytes")
    least = min(sent, key=lambda rank: sent[rank])
    return [Diagnosis("worker_frozen", f"nic:{least}")]


RULES = (slow, gone)
LAST = (still,)
