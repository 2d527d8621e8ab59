"""Wiring: what is plugged in where, against the plan."""

from __future__ import annotations

from drills.solve.diagnosis import Diagnosis
from drills.solve.operator import Operator


def crossed(op: Operator) -> list[Diagnosis]:
    """Two cables with LLDP neighbours that the plan has not."""
    wrong: dict[str, None] = {}
    for row in op.rows("show lldp neighbors"):
        cable = op.cable(str(row["LocalPort"]))
        if cable is not None and row["RemotePortDescr"] != op.peer(str(row["LocalPort"])):
            wrong[cable.name] = None
    if len(wrong) < 2:
        return []
    one, other = list(wrong)[:2]
    return [Diagnosis("miswired", f"cable:{one}", (f"cable move {one} {other}",))]
