"""Names of the bridges and TAP devices of a fabric's switches, which have a network namespace of their own.

A bridge has its switch's name and a port's TAP device is `leaf0-eth1`, as in Mininet. If such a name
would be longer than the kernel's 15 characters, or ambiguous, all switches of the fabric are numbered: `s0`, `s0-eth1`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property

from topologies.graph.fabric import Fabric, Switch

FENCE_BRIDGE = "fence"
FENCE_TAP = "fence-eth1"
_LONGEST = 15
_PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")


@dataclass(frozen=True)
class Devices:
    """Names of one fabric's bridges and TAP devices."""

    fabric: Fabric

    def bridge(self, switch: Switch) -> str:
        """The bridge of this switch; its internal port's device has the same name."""
        return switch.name if self._by_name else f"s{switch.index}"

    def tap(self, switch: Switch, port: int) -> str:
        """The TAP device of a switch's port."""
        return f"{self.bridge(switch)}-eth{port}"

    @cached_property
    def _by_name(self) -> bool:
        taken = {FENCE_BRIDGE, FENCE_TAP, "lo", "ovs-netdev", "ovs-system"}
        for switch in self.fabric.switches:
            names = {switch.name, *(f"{switch.name}-eth{port}" for port in range(1, switch.bridge_ports + 1))}
            if names & taken or not all(_PLAIN.fullmatch(n) and len(n) <= _LONGEST for n in names):
                return False
            taken |= names
        return True
