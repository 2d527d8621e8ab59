"""Names of a live fabric's parts on the machine: devices, bridges, datapath ids."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from hardware.devices import Devices
from topologies import Nic, Switch


@dataclass(frozen=True)
class Names(Devices):
    """Names of the parts of one fabric; every one fits the kernel's 15 characters."""

    id: str

    def interface_number(self, nic: Nic) -> int:
        """Which of its host's interfaces a NIC is, from 0."""
        return self._numbers[nic.name]

    @cached_property
    def _numbers(self) -> dict[str, int]:
        return {name: n for host in self.fabric.hosts for n, name in enumerate(host.nics)}

    def interface(self, nic: Nic) -> str:
        """A NIC's kernel interface inside its host's namespace."""
        return f"{nic.host}-eth{self.interface_number(nic)}"

    @property
    def dpid_base(self) -> int:
        """High bits of every datapath id of this fabric ("RB" and the id)."""
        return 0x5242 << 48 | int(self.id, 16) << 16

    def dpid(self, switch: Switch) -> int:
        return self.dpid_base | switch.dpid
