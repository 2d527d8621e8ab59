"""Switches that compute."""

from __future__ import annotations

from drills.solve.desk import Desk, number
from drills.solve.finding import Finding


def accelerators(desk: Desk) -> list[Finding]:
    found = []
    for row in desk.rows("show accelerators"):
        if row.get("status") == "down":
            switch = row["switch"]
            line = (f"accelerator on {switch}",)
            found.append(Finding("accelerator_down", f"switch:{switch}", f"{switch} adds nothing any more", line))
    return found


def leaked(desk: Desk) -> list[Finding]:
    """One has fewer slots free than its like, and gets contributions that it has no slot for."""
    rows = [row for row in desk.rows("show accelerators") if row.get("status") == "up"]
    most = max((number(row, "slots_free") for row in rows), default=0.0)
    found = []
    for row in rows:
        if number(row, "unknown") and number(row, "slots_free") < most:
            switch = row["switch"]
            why = f"{switch} has {row['slots_free']} slots free, others {most:g}, and knows nothing of what comes"
            found.append(Finding("slots_leaked", f"switch:{switch}", why, (f"accelerator reclaim {switch}",)))
    return found


RULES = (accelerators, leaked)
