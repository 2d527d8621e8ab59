"""Wiring: what is plugged in where, against the plan."""

from __future__ import annotations

from drills.solve.desk import Desk
from drills.solve.finding import Finding


def crossed(desk: Desk) -> list[Finding]:
    """Two cables whose ends hear each other's neighbours."""
    wrong: dict[str, None] = {}
    for row in desk.rows("show lldp neighbors"):
        port, heard = str(row["LocalPort"]), str(row["RemotePortDescr"])
        cable = desk.cable(port)
        if cable is not None and heard != desk.peer(port):
            wrong[cable.name] = None
    names = list(wrong)
    if len(names) < 2:
        return []
    one, other = names[:2]
    return [Finding("miswired", f"cable:{one}", f"{one} and {other} are crossed", (f"cable move {one} {other}",))]


RULES = (crossed,)
