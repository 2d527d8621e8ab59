"""How cables are mended without harm: drained, replaced, undrained."""

from __future__ import annotations

from drills.solve.operator import Operator
from topologies.graph.fabric import Cable


def new_cable(op: Operator, cable: Cable) -> tuple[str, ...]:
    """Not at a NIC: it has one cable, so the job would stand and its queue pairs would fail."""
    if not op.between_switches(cable):
        return ()
    port = op.switch_end(cable)
    return (f"route drain {port}", f"cable replace {cable.name}", f"route undrain {port}")


def around(op: Operator, cable: Cable) -> tuple[str, ...]:
    """Its flows take other paths: quicker than a new cable."""
    return (f"route drain {op.switch_end(cable)}",) if op.between_switches(cable) else ()


def resync(switch: str) -> tuple[str, ...]:
    return (f"flow resync {switch}",)
