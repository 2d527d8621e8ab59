"""What an experiment gives to the parts of its fabric, for faults that take some of it away."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from hardware import bounds
from hardware.config import Complex, Hardware
from testbed.faults.built import Built

if TYPE_CHECKING:
    from testbed.experiment.blocks.clock import Clock
    from testbed.experiment.blocks.control import Control
    from testbed.experiment.blocks.fabric import FabricSpec, Nic
    from testbed.experiment.blocks.transport import Transport
    from testbed.experiment.blocks.workers import Workers

_KERNEL_MTU = 1500
_ETHERNET = 14


class Blocks(Protocol):
    """The blocks of an experiment that say it."""

    @property
    def clock(self) -> Clock: ...
    @property
    def fabric(self) -> FabricSpec: ...
    @property
    def control(self) -> Control: ...
    @property
    def transport(self) -> Transport: ...
    @property
    def workers(self) -> Workers: ...


def complex_of(nic: Nic) -> Complex | None:
    """The inside of off-path SmartNICs."""
    if nic.complex is None:
        return None
    inside = nic.complex
    return Complex(inside.rate, inside.delay, inside.bridge_latency, inside.dma_latency, inside.post)


def built(blocks: Blocks) -> Built:
    """What the fabric is made of."""
    spec = blocks.fabric
    switch, nic = spec.switch, spec.nic
    hardware = Hardware(
        cable_rate_bps=spec.cable.rate,
        cable_delay_ns=spec.cable.delay,
        switch_buffer_bytes=switch.buffer,
        pcie_rate_bps=nic.pcie.rate,
        router_rate_bps=nic.router.rate,
        complex=complex_of(nic),
        reaction_ns=blocks.control.reaction,
    )

    def headroom(rate_bps: float, delay_ns: float) -> int:
        return bounds.headroom_bytes(rate_bps, delay_ns, nic.mtu) if switch.headroom is None else switch.headroom

    sums = 4 * switch.accelerator.elements if switch.accelerator else 0
    telemetry = bounds.TELEMETRY if blocks.transport.cc.name == "hpcc" else 0
    packet = max(nic.mtu, sums) + bounds.ROCE_HEADERS - _ETHERNET + telemetry
    longest = max(packet, _KERNEL_MTU) if blocks.clock.mode == "real" else packet
    watchdog_ns = switch.watchdog.detect if switch.watchdog else None
    return Built(hardware, headroom, longest, watchdog_ns, blocks.workers.cpus)
