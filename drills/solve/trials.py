"""When no view decides: one candidate after the other is replaced or drained, until the symptom is gone.

A cable between switches is drained first, so that replacing a good one costs nothing but time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from drills.solve.mending import new_cable
from drills.solve.operator import Operator, number
from topologies.graph.fabric import Cable

Symptom = Callable[[Operator, float], bool]
"""Whether it was there in the last so many ns."""
CARRIES = 0.1
FRAMES = 20
PATIENCE = 8


def used(op: Operator) -> list[Cable]:
    """Cables between switches that carry a tenth of what the busiest does, the busiest first."""
    sent = {str(row["IFACE"]): number(row, "TX_OK") for row in op.rows("show interfaces counters")}
    load = {}
    for cable in op.plan.cables:
        if op.between_switches(cable):
            load[cable] = sum(sent.get(f"{end.node}:{end.port}", 0.0) for end in (cable.a, cable.b))
    most = max(load.values(), default=0.0)
    return sorted((c for c in load if load[c] > CARRIES * most), key=lambda c: -load[c])


def change_cables(op: Operator, candidates: Sequence[Cable], there: Symptom, window_ns: float) -> Cable | None:
    """The cable whose replacement ends the symptom."""
    for cable in candidates:
        lines = new_cable(op, cable)
        if not lines or not op.carry_out(lines):
            continue
        for _ in range(PATIENCE):  # until the controller has written its flows
            op.pass_(window_ns)
            if carries(op, cable, window_ns * 0.7):
                break
        if not there(op, window_ns * 0.7):
            return cable
    return None


def carries(op: Operator, cable: Cable, ns: float) -> bool:
    ends = {f"{end.node}:{end.port}" for end in (cable.a, cable.b)}
    rows = op.recent("show interfaces counters", of_ns=ns)
    return any(number(row, "TX_OK") > FRAMES for row in rows if row["IFACE"] in ends)


def drain_switches(op: Operator, candidates: Sequence[str], there: Symptom, window_ns: float) -> str | None:
    """The switch without which the symptom is gone; it stays drained."""
    for switch in candidates:
        if not op.do(f"config route drain {switch}"):
            continue
        op.pass_(window_ns)
        if not there(op, window_ns * 0.7):
            return switch
        op.do(f"config route undrain {switch}")
    return None
