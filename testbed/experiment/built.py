"""What an experiment gives to the parts of its fabric, for faults that take some of it away."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Protocol

from hardware import bounds, cc, recovery
from hardware.config import Complex, Hardware
from testbed.faults.built import Built
from topologies.graph import frames

if TYPE_CHECKING:
    from testbed.experiment.blocks.clock import Clock
    from testbed.experiment.blocks.control import Control
    from testbed.experiment.blocks.fabric import FabricSpec, Nic
    from testbed.experiment.blocks.transport import Transport
    from testbed.experiment.blocks.workers import Workers
    from topologies.graph.fabric import Fabric

_KERNEL_MTU = 1500


class Blocks(Protocol):
    """The blocks of an experiment that say what its fabric is made of."""

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
    def build_fabric(self) -> Fabric: ...


def bare_hardware(blocks: Blocks) -> Hardware:
    """The hardware's parameters that the experiment says itself, and that frames' times depend on."""
    fabric, nic = blocks.fabric, blocks.fabric.nic
    return Hardware(
        cable_rate_bps=fabric.cable.rate,
        cable_delay_ns=fabric.cable.delay,
        switch_latency_ns=fabric.switch.latency,
        switch_buffer_bytes=fabric.switch.buffer,
        pcie_rate_bps=nic.pcie.rate,
        pcie_latency_ns=nic.pcie.latency,
        complex=_complex(nic),
        router_rate_bps=nic.router.rate,
        router_latency_ns=nic.router.latency,
        reaction_ns=blocks.control.reaction,
    )


def _complex(nic: Nic) -> Complex | None:
    """The inside of off-path SmartNICs."""
    if nic.complex is None:
        return None
    inside = nic.complex
    return Complex(inside.rate, inside.delay, inside.bridge_latency, inside.dma_latency, inside.post)


def needed_headroom(blocks: Blocks) -> Callable[[float, float], int]:
    """Bytes that may still come in after a pause, by the cable's rate and delay."""
    return partial(bounds.headroom_bytes, mtu=blocks.fabric.nic.mtu, stamps=max(stamps_of(blocks), bounds.STAMPS))


def headroom_of(blocks: Blocks) -> Callable[[float, float], int]:
    """Bytes of headroom of a port, for each lossless class, by its cable's rate and delay."""
    said = blocks.fabric.switch.headroom
    return needed_headroom(blocks) if said is None else lambda rate_bps, delay_ns: said


def full_path_ns(blocks: Blocks) -> float:
    """How long a packet of the longest path waits for its acknowledgement at most while nothing is lost.

    In a lossless class every switch's whole buffer may be before it, in a lossy one what one queue may hold.
    """
    fabric, graph, hardware = blocks.fabric, blocks.build_fabric(), bare_hardware(blocks)
    switch, nic, switches = fabric.switch, fabric.nic, bounds.most_switches(graph)
    cables = [hardware.cable(graph, cable) for cable in graph.cables]
    rate, delay = min(rate for rate, _ in cables), max(delay for _, delay in cables)
    rtt = bounds.base_rtt_ns(
        switches, rate_bps=rate, delay_ns=delay, latency_ns=switch.latency, mtu=nic.mtu, pcie_bps=nic.pcie.rate,
        pcie_ns=nic.pcie.latency,
    )  # fmt: skip
    share = 1.0 if switch.pfc and switch.lossless else switch.alpha / (1 + switch.alpha)
    return recovery.full_path_ns(switches, share * switch.buffer, rate, rtt)


def timeout_ns(blocks: Blocks) -> float:
    """`fabric.nic.timeout`: as written, or as long as a packet may wait without a loss."""
    written = blocks.fabric.nic.timeout
    return recovery.timeout_ns(full_path_ns(blocks)) if written is None else written


def stamps_of(blocks: Blocks) -> int:
    """Switches that a packet has room to hear of; 0: its congestion control wants to hear of none."""
    chosen = blocks.transport.cc
    control = cc.CONTROLS[chosen.name]
    heard = "telemetry" in control.hears
    return control.stamps(chosen.values, bounds.most_switches(blocks.build_fabric())) if heard else 0


def built(blocks: Blocks) -> Built:
    """What the fabric is made of."""
    switch, nic = blocks.fabric.switch, blocks.fabric.nic
    sums = 4 * switch.accelerator.elements if switch.accelerator else 0
    stamps = stamps_of(blocks)
    telemetry = bounds.telemetry_bytes(stamps) if stamps else 0
    packet = max(nic.mtu, sums) + frames.MOST_HEADERS - frames.ETHERNET + telemetry
    longest = max(packet, _KERNEL_MTU) if blocks.clock.mode == "real" else packet
    watchdog_ns = switch.watchdog.detect if switch.watchdog else None
    return Built(bare_hardware(blocks), headroom_of(blocks), longest, watchdog_ns, blocks.workers.cpus)
