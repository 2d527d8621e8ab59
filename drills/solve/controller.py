"""The controller, and cables that go down: what the log says, and what it does not say."""

from __future__ import annotations

import re

from drills.solve.desk import Desk
from drills.solve.finding import Finding
from drills.solve.mending import around

LATE_US = 500.0
"""A controller that leads around a cut later than this is late; after longer it is not to be waited for."""
GIVES_UP_US = 1500.0
_DOWN = re.compile(r"(\S+:\d+) oper state set from up to down")


def cuts(desk: Desk) -> list[Finding]:
    down: dict[str, tuple[str, float]] = {}
    for row in desk.rows("show logging"):
        told = _DOWN.match(str(row["message"]))
        cable = desk.cable(told[1]) if told else None
        if told and cable:
            down.setdefault(cable.name, (told[1], float(row["time_us"])))
    now = {str(row["Interface"]): row for row in desk.rows("show interfaces status")}
    for port, row in now.items():
        cable = desk.cable(port)
        if cable and row["Oper"] == "down" and row["Admin"] == "up":
            down.setdefault(cable.name, (port, 0.0))
    found = []
    for name, (port, _) in down.items():
        cable = desk.cable(port)
        assert cable is not None
        found.append(Finding("cable_down", f"cable:{name}", f"the log has {name} down", around(desk, cable)))
    return found


def steering(desk: Desk) -> list[Finding]:
    """What the controller has done about the first cut."""
    rows = desk.rows("show logging")
    own = [row for row in rows if row["who"] == "controller"]
    restart = ("controller restart",)
    if any("connection lost" in str(row["message"]) for row in own):
        return [Finding("controller_dead", "controller", "the connection to it is lost", restart)]
    first = min((float(row["time_us"]) for row in rows if _DOWN.match(str(row["message"]))), default=None)
    if first is None:
        return []
    after = min((float(row["time_us"]) for row in own if float(row["time_us"]) > first), default=None)
    if after is None:
        left = GIVES_UP_US - (desk.time_ns / 1000 - first)
        if left > 0 and desk.pass_(left * 1000):
            return steering(desk)
        return [Finding("controller_hung", "controller", "a port went down and it has done nothing", restart)]
    if after - first > LATE_US:
        return [Finding("slow_controller", "controller", f"it takes {after - first:.0f} us", restart)]
    return []


def refused(desk: Desk) -> list[Finding]:
    found = []
    for row in desk.rows("show logging"):
        told = re.match(r"(\S+) refused \d+ flow mods: .*TABLE_FULL", str(row["message"]))
        if told:
            found.append(Finding("table_full", f"switch:{told[1]}", str(row["message"]), (f"route drain {told[1]}",)))
    return list({str(f): f for f in found}.values())


RULES = (cuts, steering, refused)
