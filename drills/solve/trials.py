"""Where looking ends: one candidate after the other is changed, until the symptom is gone.

A cable between switches is drained first, so that a good one is changed at no cost but time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from drills.solve.desk import Desk, number
from drills.solve.mending import new_cable
from topologies.graph.fabric import Cable

Symptom = Callable[[Desk, float], bool]
"""Whether it was there in the last so many ns."""
CARRIES = 0.1
FRAMES = 20
PATIENCE = 8


def used(desk: Desk) -> list[Cable]:
    """Cables between switches that carry a tenth of what the busiest does, the busiest first."""
    sent = {str(row["IFACE"]): number(row, "TX_OK") for row in desk.rows("show interfaces counters")}
    load = {}
    for cable in desk.plan.cables:
        if desk.between_switches(cable):
            load[cable] = sum(sent.get(f"{end.node}:{end.port}", 0.0) for end in (cable.a, cable.b))
    most = max(load.values(), default=0.0)
    return sorted((c for c in load if load[c] > CARRIES * most), key=lambda c: -load[c])


def change_cables(desk: Desk, candidates: Sequence[Cable], there: Symptom, window_ns: float) -> Cable | None:
    """The cable with whose successor the symptom is gone."""
    for cable in candidates:
        lines = new_cable(desk, cable)
        if not lines or not desk.carry_out(lines):
            continue
        for _ in range(PATIENCE):  # flows come back when the controller has written them
            desk.pass_(window_ns)
            if carries(desk, cable, window_ns * 0.7):
                break
        if not there(desk, window_ns * 0.7):
            return cable
    return None


def carries(desk: Desk, cable: Cable, ns: float) -> bool:
    ends = {f"{end.node}:{end.port}" for end in (cable.a, cable.b)}
    rows = desk.recent("show interfaces counters", of_ns=ns)
    return any(number(row, "TX_OK") > FRAMES for row in rows if row["IFACE"] in ends)


def drain_switches(desk: Desk, candidates: Sequence[str], there: Symptom, window_ns: float) -> str | None:
    """The switch without which the symptom is gone; it stays drained."""
    for switch in candidates:
        if not desk.do(f"config route drain {switch}"):
            continue
        desk.pass_(window_ns)
        if not there(desk, window_ns * 0.7):
            return switch
        desk.do(f"config route undrain {switch}")
    return None
