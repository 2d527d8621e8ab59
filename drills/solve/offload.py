"""Switches that compute."""

from __future__ import annotations

from collections.abc import Iterator

from drills.solve.diagnosis import Diagnosis
from drills.solve.operator import Operator, number


def accelerators(op: Operator) -> Iterator[Diagnosis]:
    for row in op.rows("show accelerators"):
        if row.get("status") == "down":
            switch, why = row["switch"], f"{row['switch']} adds nothing any more"
            yield Diagnosis("accelerator_down", f"switch:{switch}", why, (f"accelerator on {switch}",))


def leaked(op: Operator) -> Iterator[Diagnosis]:
    """Fewer free slots than other switches, and contributions without a slot."""
    rows = [row for row in op.rows("show accelerators") if row.get("status") == "up"]
    most = max((number(row, "slots_free") for row in rows), default=0.0)
    for row in rows:
        if number(row, "unknown") and number(row, "slots_free") < most:
            switch = row["switch"]
            why = f"{switch} has {row['slots_free']} slots free, others {most:g}, and knows nothing of what comes"
            yield Diagnosis("slots_leaked", f"switch:{switch}", why, (f"accelerator reclaim {switch}",))


RULES = (accelerators, leaked)
