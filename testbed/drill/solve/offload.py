"""Switches that compute."""

from __future__ import annotations

from testbed.drill.solve.desk import Desk
from testbed.drill.solve.finding import Finding


def accelerators(desk: Desk) -> list[Finding]:
    found = []
    for row in desk.rows("show accelerators"):
        if row.get("status") == "down":
            switch = row["switch"]
            line = (f"accelerator on {switch}",)
            found.append(Finding("accelerator_down", f"switch:{switch}", f"{switch} adds nothing any more", line))
    return found


RULES = (accelerators,)
