"""From a fabric and its hardware's parameters to fabricd's configuration (docs/fabricd-protocol.md)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from hardware.devices import FENCE_TAP, Devices
from topologies.fabric import Cable, Fabric, Nic, Switch
from topologies.smartnic import ROLE


@dataclass(frozen=True)
class Complex:
    """The inside of off-path SmartNICs: what leads to the compute complex, and the embedded bridge."""

    rate_bps: float
    delay_ns: float
    bridge_latency_ns: float
    dma_latency_ns: float
    post_ns: float


@dataclass(frozen=True)
class Hardware:
    """The true parameters of cables, switches and NICs: rates in bit/s, times in ns, sizes in bytes."""

    cable_rate_bps: float = 400e9
    cable_delay_ns: float = 500.0
    switch_latency_ns: float = 500.0
    switch_buffer_bytes: int = 32_000_000
    mtu: int = 4096
    pcie_rate_bps: float = 512e9
    pcie_latency_ns: float = 500.0
    post_ns: float = 100.0
    tx_buffer_bytes: int = 131_072
    ack_every: int = 16
    timeout_ns: float = 2_000_000.0
    retry: int = 7
    rnr_timeout_ns: float = 10_000.0
    rnr_retry: int = 7  # 7: for ever, as in the verbs
    scale_up_rate_bps: float = 3600e9
    scale_up_delay_ns: float = 300.0
    reaction_ns: float = 1_000_000.0
    switch: Mapping[str, Any] = field(default_factory=dict)
    """More of a switch, as fabricd names it (docs/fabricd-protocol.md); without: one buffer, no PFC, no ECN."""
    nic: Mapping[str, Any] = field(default_factory=dict)
    """More of a NIC, likewise; without: no PFC thresholds, no congestion control, go-back-N."""
    accelerator: Mapping[str, Any] = field(
        default_factory=lambda: {"slots": 1024, "elements": 256, "fan_in": 64, "latency_ns": 0.0}
    )
    """Of the switches that have one (Switch.accelerator)."""

    complex: Complex | None = None
    """Of a fabric with compute complexes."""

    def cable(self, fabric: Fabric, cable: Cable) -> tuple[float, float]:
        """Rate and delay of a cable.  Inside a NIC the host's side is as fast as the cable, and has no length."""
        if cable.name not in fabric.inside:
            return self.cable_rate_bps, self.cable_delay_ns
        if self.complex is None or cable.a.node not in fabric.complexes:
            return self.cable_rate_bps, 0.0
        return self.complex.rate_bps, self.complex.delay_ns

    def latency_ns(self, switch: Switch) -> float:
        """Of a switch or embedded bridge."""
        return self.complex.bridge_latency_ns if self.complex and switch.role == ROLE else self.switch_latency_ns


def _accelerator(switch: Switch, hardware: Hardware) -> dict[str, Any]:
    if not switch.accelerator:
        return {}
    rate = switch.ports * hardware.cable_rate_bps  # that of all ports together: it never holds anybody up
    return {"accelerator": {"rate_bps": rate, **hardware.accelerator, "ip": int(switch.accelerator_ip)}}


def netdev_name(fabric_id: str, nic: Nic) -> str:
    """A NIC's kernel interface, before it is moved into its host's namespace."""
    return f"rb{fabric_id}-n{nic.rank}"


def fabricd_config(
    fabric: Fabric,
    hardware: Hardware,
    *,
    fabric_id: str,
    clock: Mapping[str, Any],
    seed: int = 1,
    worker_timeout_ms: int = 3000,
) -> dict[str, Any]:
    """The configuration of one fabric's fabricd.

    `clock` is {"mode": "virtual"} or {"mode": "real", "dilation": N}; with the real clock every NIC gets a netdev.
    """
    real, devices = clock["mode"] == "real", Devices(fabric)
    nic_common = {
        "mtu": hardware.mtu,
        "pcie_rate_bps": hardware.pcie_rate_bps,
        "pcie_latency_ns": hardware.pcie_latency_ns,
        "post_ns": hardware.post_ns,
        "tx_buffer_bytes": hardware.tx_buffer_bytes,
        "ack_every": hardware.ack_every,
        "timeout_ns": hardware.timeout_ns,
        "retry": hardware.retry,
        "rnr_timeout_ns": hardware.rnr_timeout_ns,
        "rnr_retry": hardware.rnr_retry,
        **hardware.nic,
    }
    of_complexes = {}
    if hardware.complex is not None:
        of_complexes = {
            "pcie_rate_bps": hardware.complex.rate_bps,
            "pcie_latency_ns": hardware.complex.dma_latency_ns,
            "post_ns": hardware.complex.post_ns,
        }
    return {
        "fabric": fabric_id,
        "seed": seed,
        "clock": dict(clock),
        "worker_timeout_ms": worker_timeout_ms,
        "control": {"reaction_ns": hardware.reaction_ns},
        "fence_tap": FENCE_TAP,
        "switches": [
            {
                "name": s.name,
                "latency_ns": hardware.latency_ns(s),
                "buffer_bytes": hardware.switch_buffer_bytes,
                "taps": [devices.tap(s, port) for port in range(1, s.bridge_ports + 1)],
                **hardware.switch,
                **_accelerator(s, hardware),
            }
            for s in fabric.switches
        ],
        "nics": [
            {
                "name": n.name,
                "rank": n.rank,
                "mac": n.mac,
                "ip": str(n.ip),
                "netdev": netdev_name(fabric_id, n) if real else None,
                **nic_common,
                **(of_complexes if n.name in fabric.complexes else {}),
            }
            for n in fabric.nics
        ],
        "cables": [
            {
                "name": c.name,
                "a": [c.a.node, c.a.port],
                "b": [c.b.node, c.b.port],
                "rate_bps": rate,
                "delay_ns": delay,
            }
            for c in fabric.cables
            for rate, delay in (hardware.cable(fabric, c),)
        ],
        "scale_up": [
            {
                "nics": list(domain),
                "rate_bps": hardware.scale_up_rate_bps,
                "delay_ns": hardware.scale_up_delay_ns,
            }
            for domain in fabric.scale_up
        ],
    }
