"""Switches that compute."""

from __future__ import annotations

from collections.abc import Iterator

from drills.solve.diagnosis import Diagnosis
from drills.solve.operator import Operator, number


def accelerators(op: Operator) -> Iterator[Diagnosis]:
    for row in op.rows("show accelerators"):
        if row.get("status") == "down":
            switch = row["switch"]
            yield Diagnosis("accelerator_down", f"switch:{switch}", (f"accelerator on {switch}",))


def leaked(op: Operator) -> Iterator[Diagnosis]:
    """Fewer free slots than other switches, and contributions without a slot."""
    rows = [row for row in op.rows("show accelerators") if row.get("status") == "up"]
    most = max((number(row, "slots_free") for row in rows), default=0.0)
    for row in rows:
        if number(row, "unknown") and number(row, "slots_free") < most:
            switch = row["switch"]
            yield Diagnosis("slots_leaked", f"switch:{switch}", (f"accelerator reclaim {switch}",))


RULES = (accelerators, leaked)
