"""The controller, and cables that go down: what the log has, and what it lacks."""

from __future__ import annotations

import re
from collections.abc import Iterator

from drills.solve.diagnosis import Diagnosis, distinct
from drills.solve.mending import around
from drills.solve.operator import Operator
from topologies.graph.fabric import Cable

LATE_US = 500.0
"""A controller that reroutes around a cut later than this is slow; after GIVES_UP_US it hangs."""
GIVES_UP_US = 1500.0
_DOWN = re.compile(r"(\S+:\d+) oper state set from up to down")


def cuts(op: Operator) -> Iterator[Diagnosis]:
    down: dict[Cable, None] = {}
    for row in op.rows("show logging"):
        match = _DOWN.match(str(row["message"]))
        if match and (cable := op.cable(match[1])):
            down[cable] = None
    for row in op.rows("show interfaces status"):
        cable = op.cable(str(row["Interface"]))
        if cable and row["Oper"] == "down" and row["Admin"] == "up":
            down[cable] = None
    for cable in down:
        yield Diagnosis("cable_down", f"cable:{cable.name}", around(op, cable))


def steering(op: Operator) -> list[Diagnosis]:
    """What the controller has done about the first cut."""
    rows = op.rows("show logging")
    own = [row for row in rows if row["who"] == "controller"]
    restart = ("controller restart",)
    if any("connection lost" in str(row["message"]) for row in own):
        return [Diagnosis("controller_dead", "controller", restart)]
    first = min((float(row["time_us"]) for row in rows if _DOWN.match(str(row["message"]))), default=None)
    if first is None:
        return []
    after = min((float(row["time_us"]) for row in own if float(row["time_us"]) > first), default=None)
    if after is None:
        left = GIVES_UP_US - (op.time_ns / 1000 - first)
        if left > 0 and op.pass_(left * 1000):
            return steering(op)
        return [Diagnosis("controller_hung", "controller", restart)]
    if after - first > LATE_US:
        return [Diagnosis("slow_controller", "controller", restart)]
    return []


@distinct
def refused(op: Operator) -> Iterator[Diagnosis]:
    for row in op.rows("show logging"):
        match = re.match(r"(\S+) refused \d+ flow mods: .*TABLE_FULL", str(row["message"]))
        if match:
            switch = match[1]
            yield Diagnosis("table_full", f"switch:{switch}", (f"route drain {switch}",))


RULES = (cuts, steering, refused)
