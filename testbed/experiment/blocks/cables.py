"""Rate and delay of each cable of a fabric.

The last of these that applies wins: `fabric.cable` (every cable), `fabric.host_cable` (those that end at hosts), a
custom topology's values of a cable or its class, and the entries of `fabric.cables` in their order.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from pydantic import Field, model_validator

from testbed.base.types import Model, Rate, Time, mistake
from testbed.experiment.blocks.flow_control import OfSomeCables
from topologies.graph import targets
from topologies.graph.fabric import Cable, Fabric, TopologyError
from topologies.graph.targets import AllTarget, CableTarget, NicTarget, PortTarget, SwitchTarget

MAX_RATE = 10**14
MAX_TIME = 10.0**13


class OwnCable(Model):
    """Rate and delay of some cables; null: as all others."""

    rate: Rate | None = Field(default=None, gt=0, le=MAX_RATE, description="bit rate (null: as `fabric.cable`)")
    delay: Time | None = Field(default=None, le=MAX_TIME, description="propagation delay (null: as `fabric.cable`)")


class HostCable(OwnCable, OfSomeCables):
    """Of the cables that end at hosts."""


class Override(OfSomeCables):
    """Rate and delay of the cables of one target, and how they keep frames."""

    rate: Rate | None = Field(default=None, gt=0, le=MAX_RATE, description="bit rate (null: as without)")
    delay: Time | None = Field(default=None, le=MAX_TIME, description="propagation delay (null: as without)")

    @model_validator(mode="after")
    def _says_something(self) -> Override:
        if {self.rate, self.delay, self.flow_control, self.retry} == {None}:
            raise mistake("this changes nothing", "give a rate, a delay, flow_control or retry")
        return self


def laid(fabric: Fabric, host_cable: OwnCable, overrides: Mapping[str, Override]) -> Fabric:
    """The fabric with every cable's own rate and delay.  Raises TopologyError whose key is the wrong override."""
    own: dict[str, Cable] = {}
    if host_cable.rate is not None or host_cable.delay is not None:
        for cable in fabric.cables:
            if cable.name in fabric.to_hosts:
                rate = host_cable.rate if cable.rate_bps is None else cable.rate_bps
                delay = host_cable.delay if cable.delay_ns is None else cable.delay_ns
                own[cable.name] = replace(cable, rate_bps=rate, delay_ns=delay)
    for text, told in overrides.items():
        for name in (cable.name for cable in named(fabric, text)):
            cable = own.get(name, fabric.cable_by_name[name])
            rate = cable.rate_bps if told.rate is None else told.rate
            own[name] = replace(cable, rate_bps=rate, delay_ns=cable.delay_ns if told.delay is None else told.delay)
    if not own:
        return fabric
    return replace(fabric, cables=tuple(own.get(cable.name, cable) for cable in fabric.cables))


def named(fabric: Fabric, text: str) -> list[Cable]:
    """The cables that a target names, except links inside NICs."""
    match targets.resolve(fabric, text):
        case CableTarget(cable):
            found = [cable]
        case PortTarget(cable=cable):
            found = [cable]
        case SwitchTarget(switch):
            found = [c for c in fabric.cables if switch.name in (c.a.node, c.b.node)]
        case NicTarget(nic):
            bridge = fabric.bridge_of(nic.name)
            end = nic.name if bridge is None else bridge.name
            found = [c for c in fabric.cables if end in (c.a.node, c.b.node)]
        case AllTarget(cables):
            found = list(cables)
        case _:
            raise TopologyError(text, "names no cable", "cable:A-B, port:SWITCH:N, nic:RANK, switch:NAME or all")
    outside = [cable for cable in found if cable.name not in fabric.inside]
    if not outside:
        what = "is inside a NIC, where there is no cable"
        raise TopologyError(text, what, "fabric.nic.router or fabric.nic.complex says how fast that is")
    return outside
