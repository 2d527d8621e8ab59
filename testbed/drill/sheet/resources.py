"""Every right name of the place where a fault is."""

from __future__ import annotations

from testbed.faults import Fault, Place
from testbed.faults.base import FrameFault
from testbed.faults.cable import CableFault
from topologies.graph.fabric import Cable
from topologies.graph.targets import CableTarget, NicTarget, PortTarget


def resources(fault: Fault, place: Place) -> tuple[str, ...]:
    """The canonical name first."""
    target = place.target
    on_wire = isinstance(fault, FrameFault | CableFault)
    if isinstance(target, CableTarget):
        return _of_cable(place, target.cable)
    if on_wire and isinstance(target, PortTarget | NicTarget) and len(place.cables()) == 1:
        return _of_cable(place, place.cables()[0])
    return (str(target),)


def _of_cable(place: Place, cable: Cable) -> tuple[str, ...]:
    """A cable is the ports at its ends."""
    names = [f"cable:{cable.name}"]
    for end in (cable.a, cable.b):
        if end.node in place.fabric.switch_by_name:
            names.append(f"port:{end.node}:{end.port}")
        elif end.node in place.fabric.nic_by_name:
            names.append(f"nic:{place.fabric.nic_by_name[end.node].rank}")
    return tuple(names)
