"""Ranks that take their time, stand still, or have gone."""

from __future__ import annotations

from collections import Counter

from drills.solve.desk import Desk, number
from drills.solve.finding import Finding

LONGER = 1.3
SEEN = 40


def slow(desk: Desk) -> list[Finding]:
    """In slow steps it is one rank's own time that is longer."""
    steps: dict[str, dict[int, float]] = {}
    for row in desk.rows(f"show job --ranks --last {SEEN}"):
        if not row.get("fallback"):
            its = number(row, "host_us") + number(row, "compute_us")
            steps.setdefault(str(row["step"]), {})[int(row["rank"])] = its
    named: Counter[int] = Counter()
    for busy in steps.values():
        ordered = sorted(busy.values())
        middle = ordered[len(ordered) // 2]
        most = max(busy, key=lambda rank: busy[rank])
        if busy[most] > LONGER * middle and busy[most] - middle > 0.05 * desk.best_us:
            named[most] += 1
    if not named:
        return []
    rank, times = named.most_common(1)[0]
    return [Finding("straggler", f"nic:{rank}", f"rank {rank} is at work for longer in {times} steps")]


def gone(desk: Desk) -> list[Finding]:
    """A worker that has ended, and not because its queue pairs had failed."""
    failed: set[str] = set()
    for row in desk.rows("show logging"):
        who, message = str(row["who"]), str(row["message"])
        if who.startswith("nic") and "in error" in message:
            failed.add(who[3:])
        if who.startswith("rank") and "ended" in message and who[4:] not in failed:
            return [Finding("worker_killed", f"nic:{who[4:]}", f"{who}: {message}")]
    return []


def still(desk: Desk) -> list[Finding]:
    """Nothing is lost, nobody pauses, all wait but one; or if all do, who has sent least?"""
    if not desk.stands or any(number(row, "local_ack_timeout_err") > 0 for row in desk.recent("show nics")):
        return []
    busy = [int(row["rank"]) for row in desk.rows("show job --now") if row.get("state") == "at work"]
    if len(busy) == 1:
        return [Finding("worker_frozen", f"nic:{busy[0]}", f"rank {busy[0]} is at work, and all others wait for it")]
    sent: dict[int, float] = {}
    for row in desk.rows("show qps"):
        sent[int(row["rank"])] = sent.get(int(row["rank"]), 0.0) + number(row, "tx_bytes")
    least = min(sent, key=lambda rank: sent[rank])
    return [Finding("worker_frozen", f"nic:{least}", f"rank {least} has sent least, and all wait")]


RULES = (slow, gone)
LAST = (still,)
