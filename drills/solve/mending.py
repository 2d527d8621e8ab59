"""How wires are mended without harm: led around, changed, used again."""

from __future__ import annotations

from drills.solve.desk import Desk
from topologies.graph.fabric import Cable


def new_cable(desk: Desk, cable: Cable) -> tuple[str, ...]:
    """A NIC has one cable: while it is changed the job would stand, and its queue pairs give up."""
    if not desk.between_switches(cable):
        return ()
    port = desk.switch_end(cable)
    return (f"route drain {port}", f"cable replace {cable.name}", f"route undrain {port}")


def around(desk: Desk, cable: Cable) -> tuple[str, ...]:
    """Its flows go elsewhere: sooner than a new cable."""
    return (f"route drain {desk.switch_end(cable)}",) if desk.between_switches(cable) else ()


def resync(switch: str) -> tuple[str, ...]:
    return (f"flow resync {switch}",)
